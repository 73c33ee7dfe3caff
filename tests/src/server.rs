//! A running `traceholdd`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::api::Api;
use crate::http::Connection;
use crate::programs;

/// A server that is not ready after this never will be.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// What the server says on its standard output when it answers.
const READY_PREFIX: &str = "listening on http://";

/// The log, in the folder of a server.
const LOG: &str = "server.log";

/// The data, in the folder of a server.
const DATA: &str = "data";

/// As much of the end of a log as helps.
const LOG_BYTES_SHOWN: usize = 16 * 1024;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Configuration beyond the defaults, as TOML.
    pub config: String,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The program; the one of the test profile when empty.
    pub program: Option<PathBuf>,
}

impl Settings {
    /// The default configuration with these lines.
    pub fn with_config(config: &str) -> Self {
        Self {
            config: config.to_owned(),
            ..Self::default()
        }
    }
}

/// The configuration for a disk of some hundred MiB, which is low by the usual measure.
pub fn small_disk_settings() -> Settings {
    Settings::with_config(
        "[storage]\npreallocation_bytes_max = 1048576\ndisk_stop_free_bytes = 16777216\n\
         live_index_packets_max = 64\n",
    )
}

/// A running server on a free port of the loopback address. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    data: PathBuf,
    log: PathBuf,
    settings: Settings,
    /// From the start of the process to its ready line.
    ready_after: Duration,
}

impl Server {
    /// Starts a server on this folder and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready: its log stands in the message.
    pub fn start(folder: &Path, settings: &Settings) -> Self {
        match Self::try_start(folder, settings) {
            Ok(server) => server,
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts a server that may refuse to start; then gives what it said.
    ///
    /// # Errors
    /// When the process ends, or says nothing for two minutes.
    pub fn try_start(folder: &Path, settings: &Settings) -> Result<Self, String> {
        let begin = Instant::now();
        let child = command(folder, settings).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("the server's program: {error}"));
        let log = folder.join(LOG);
        match ready_address(&mut child) {
            Some(address) => Ok(Self {
                child,
                address,
                data: folder.join(DATA),
                log,
                settings: settings.clone(),
                ready_after: begin.elapsed(),
            }),
            None => {
                // Killing a process that has ended already is no fault.
                child.kill().ok();
                let status = child.wait().expect("a child can be waited for");
                Err(format!(
                    "the server did not start ({status}):\n{}",
                    log_tail(&log)
                ))
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// How long the start took.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// A new connection to it.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("a ready server accepts")
    }

    /// Its API over a new connection.
    pub fn api(&self) -> Api {
        Api::new(self.connect())
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it as a crash would: SIGKILL, at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Asks it to end, and does not wait.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill runs");
        assert!(status.success(), "the server is gone already");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within the limit.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                begin.elapsed() < limit,
                "the server still runs after {limit:?}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts it again and kills it after this time, ready or not; it must have ended.
    pub fn restart_and_kill(&mut self, delay: Duration) {
        let folder = self.folder();
        let mut child = command(&folder, &self.settings)
            .stdout(Stdio::null())
            .spawn();
        let child = child.as_mut().expect("the program was there before");
        thread::sleep(delay);
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// Starts it again on the same folder with the same settings; it must have ended.
    pub fn restart(&mut self) {
        let settings = self.settings.clone();
        self.restart_with(&settings);
    }

    /// Starts it again on the same folder with other settings; it must have ended.
    pub fn restart_with(&mut self, settings: &Settings) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_some(), "end the server before it is started again");
        *self = Self::start(&self.folder(), settings);
    }

    fn folder(&self) -> PathBuf {
        self.data
            .parent()
            .expect("the data folder lies in the test's")
            .to_owned()
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "the log of the server explains a failed test"
    )]
    fn drop(&mut self) {
        // It may have ended already; nothing is left to do then.
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            eprintln!("log of the server:\n{}", log_tail(&self.log));
        }
    }
}

/// The command that starts a server on this folder, its log going to the end of one file.
fn command(folder: &Path, settings: &Settings) -> Command {
    fs::create_dir_all(folder).expect("a test can write to its folder");
    let config = folder.join("config.toml");
    fs::write(&config, &settings.config).expect("a test can write to its folder");
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(LOG));
    let program = settings
        .program
        .clone()
        .unwrap_or_else(programs::traceholdd);
    let mut command = Command::new(program);
    command
        .arg("--config")
        .arg(config)
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.join(DATA))
        .envs(settings.environment.iter().cloned())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(log.expect("a test can write to its folder"));
    command
}

/// The address of the ready line; none when the output ends before it.
fn ready_address(child: &mut Child) -> Option<SocketAddr> {
    let output = child.stdout.take().expect("the pipe was asked for");
    let (sender, receiver) = mpsc::sync_channel(1);
    // The thread lives as long as the server, so that the pipe never fills up.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let address = line
                .find(READY_PREFIX)
                .map(|at| &line[at + READY_PREFIX.len()..]);
            let address = address.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            if let Some(address) = address {
                // Nobody waits any more when the limit is over.
                sender.try_send(address).ok();
            }
        }
    });
    receiver.recv_timeout(READY_LIMIT).ok()
}

fn log_tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let begin = bytes.len().saturating_sub(LOG_BYTES_SHOWN);
    String::from_utf8_lossy(&bytes[begin..]).into_owned()
}
