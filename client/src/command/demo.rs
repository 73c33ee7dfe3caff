//! `tracehold demo`: a server with traces to look at, which is gone afterwards.

use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandError, Context, Exit};
use crate::clock;
use crate::http::{Client, NewStorage, Retry, ServerUrl, TlsFiles};

/// Start a server with example traces in a temporary folder, and say how to look at them
///
/// The traces are of a Python program (VizTracer), of file operations (DFTracer), and of two
/// threads with LTTng. Ctrl-C stops the server and removes its data.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Program of the server [default: traceholdd next to this program, or on the PATH]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A file of an example: its path below the folder of the examples, and its content.
type ExampleFile = (&'static str, &'static [u8]);

macro_rules! example_files {
    ($($path:literal)+) => {
        &[$(($path, include_bytes!(concat!("../../../tests/data/", $path)) as &[u8]),)+]
    };
}

/// A storage, what is pushed into it, and its files.
struct Example {
    storage: &'static str,
    description: &'static str,
    pushed: &'static str,
    files: &'static [ExampleFile],
}

const EXAMPLES: [Example; 3] = [
    Example {
        storage: "python",
        description: "a recursive function on two threads, recorded by VizTracer",
        pushed: "chrome_viztracer.json",
        files: example_files!["chrome_viztracer.json"],
    },
    Example {
        storage: "files",
        description: "9,729 file operations, as DFTracer writes them",
        pushed: "trace-0-of-1.pfw.gz",
        files: example_files!["trace-0-of-1.pfw.gz"],
    },
    Example {
        storage: "threads",
        description: "two threads with 400 events each, recorded by LTTng",
        pushed: "lttng/uid/0/64-bit",
        files: example_files![
            "lttng/uid/0/64-bit/metadata"
            "lttng/uid/0/64-bit/chan_0"
            "lttng/uid/0/64-bit/chan_1"
        ],
    },
];

impl Demo {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        context.block_on(async {
            // Before there is anything: an interrupt at any time must stop the server and remove
            // the folder.
            let mut signals = [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ];
            let [interrupt, terminate, hangup] = &mut signals;
            let folder = TemporaryFolder::create()?;
            let mut server = self.start(&folder.0)?;
            let output = server.0.stdout.take();
            let work = async {
                let ready = tokio::task::spawn_blocking(move || wait_until_ready(output));
                let url = ready.await.map_err(|error| failed(error.into()))??;
                let storages = push_examples(&url, &folder.0).await?;
                show(context, &url, &storages, &folder.0)?;
                std::future::pending::<Result<(), CommandError>>().await
            };
            let shown = tokio::select! {
                biased;
                failed = work => failed,
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
                _ = hangup.recv() => Ok(()),
                ended = server.ended() => ended,
            };
            server.stop();
            shown.map(|()| Exit::Done)
        })
    }

    fn start(&self, folder: &Path) -> Result<DemoServer, CommandError> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => beside_this_program("traceholdd"),
        };
        let mut command = Command::new(&program);
        command.arg("--listen").arg(self.listen.to_string());
        command.arg("--data-dir").arg(folder.join("data"));
        without_settings(&mut command);
        // What other programs on this machine send belongs to another server.
        command.env("TRACEHOLD_OTLP_GRPC_LISTEN", "off");
        command.env("TRACEHOLD_OTLP_HTTP_LISTEN", "off");
        command.env("TRACEHOLD_LOG_LEVEL", "error");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // An interrupt from the terminal is for this program, which stops the server.
        let child = command.process_group(0).spawn().map_err(|error| {
            let program = program.display();
            let what = "the program of the server; name it with --program";
            CommandError::io(format!("{program} ({what})"), error)
        })?;
        Ok(DemoServer(child))
    }
}

/// A program that is installed with this one.
fn beside_this_program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name(name);
    if beside.is_file() {
        return beside;
    }
    PathBuf::from(name)
}

/// Removes what the environment says about other servers.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRACEHOLD_") {
            command.env_remove(name);
        }
    }
}

/// Creates the storages; their names and ids.
async fn push_examples(url: &str, folder: &Path) -> Result<Vec<Value>, CommandError> {
    let server: ServerUrl = url.parse()?;
    let client = Client::with_tls(server, None, Retry::default(), &TlsFiles::default())?;
    let mut storages = Vec::new();
    for example in &EXAMPLES {
        for (path, content) in example.files {
            let path = folder.join("examples").join(path);
            let written = path.parent().map_or(Ok(()), fs::create_dir_all);
            let written = written.and_then(|()| fs::write(&path, content));
            written.map_err(|error| CommandError::io(path.display(), error))?;
        }
        let new = NewStorage {
            name: example.storage.to_owned(),
            description: example.description.to_owned(),
            open: true,
            ..NewStorage::default()
        };
        let id = client.create_storage(&new, clock::new_id()).await?.id;
        let pushed = folder.join("examples").join(example.pushed);
        push(url, example.storage, &pushed).await?;
        client.finalize_storage(id).await?;
        storages.push(json!({
            "name": example.storage,
            "id": id,
            "description": example.description,
            "page": format!("{url}/#/storage/{id}"),
        }));
    }
    Ok(storages)
}

/// Pushes as somebody would at a prompt.
async fn push(url: &str, storage: &str, path: &Path) -> Result<(), CommandError> {
    let this = std::env::current_exe();
    let mut command = Command::new(this.map_err(|error| CommandError::io("this program", error))?);
    without_settings(&mut command);
    command.args(["--server", url, "--json", "push", "--storage", storage]);
    command.arg(path).stdin(Stdio::null());
    let failed = |error| CommandError::io(format!("pushing {}", path.display()), error);
    let pushed = tokio::task::spawn_blocking(move || command.output()).await;
    let pushed = pushed
        .map_err(|error| failed(error.into()))?
        .map_err(failed)?;
    if pushed.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&pushed.stderr).into_owned();
    Err(failed(std::io::Error::other(said)))
}

fn show(
    context: &Context,
    url: &str,
    storages: &[Value],
    folder: &Path,
) -> Result<(), CommandError> {
    let document = json!({ "url": url, "storages": storages, "folder": folder });
    let lines: String = EXAMPLES
        .iter()
        .map(|example| format!("  {:<9}{}\n", example.storage, example.description))
        .collect();
    context.print(&document, || {
        format!(
            "the page: {url}/\n\nstorages:\n{lines}\n\
             in another terminal:\n  \
             export TRACEHOLD_SERVER={url}\n  \
             tracehold query --storage files 'dur > 1ms' --group-by name\n  \
             tracehold query --storage python --format perfetto --output python.pftrace\n  \
             tracehold open threads\n\n\
             The page of a storage opens it in the Perfetto UI; the second command writes the file\n\
             for that UI. Ctrl-C stops the server and removes {}.",
            folder.display()
        )
    })?;
    context.flush()
}

fn failed(error: std::io::Error) -> CommandError {
    CommandError::io("traceholdd", error)
}

/// The URL that the server says that it listens on.
fn wait_until_ready(output: Option<ChildStdout>) -> Result<String, CommandError> {
    let silent = || {
        failed(std::io::Error::other(
            "it ended without saying where it listens",
        ))
    };
    let mut output = BufReader::new(output.ok_or_else(silent)?);
    let mut line = String::new();
    while output.read_line(&mut line).map_err(failed)? > 0 {
        if let Some(url) = line.trim_end().strip_prefix("listening on ") {
            let url = url.to_owned();
            // It must be able to say the rest.
            std::thread::spawn(move || output.read_to_end(&mut Vec::new()));
            return Ok(url);
        }
        line.clear();
    }
    Err(silent())
}

/// The server, which ends with this program.
struct DemoServer(Child);

impl DemoServer {
    /// Waits until it has ended by itself.
    async fn ended(&mut self) -> Result<(), CommandError> {
        loop {
            if let Some(status) = self.0.try_wait().map_err(failed)? {
                return Err(failed(std::io::Error::other(format!("it ended: {status}"))));
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// Asks it to end, and waits until it has. One that has ended already is no failure.
    fn stop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder of the user alone, removed at the end.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create() -> Result<Self, CommandError> {
        let name = format!("tracehold-demo-{}", clock::new_id());
        let path = std::env::temp_dir().join(name);
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| CommandError::io(path.display(), error))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
