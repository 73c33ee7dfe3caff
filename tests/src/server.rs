//! A running `traceholdd`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::api::Api;
use crate::http::Connection;
use crate::programs;

/// A server that takes longer than this to start is considered hung.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// The beginnings of the lines on standard output before it that report the ports for spans.
const GRPC_PREFIX: &str = "OTLP/gRPC on http://";
const OTLP_PREFIX: &str = "OTLP/HTTP on http://";

/// The beginnings of the line on standard output that reports the address.
const READY_PREFIX: &str = "listening on http://";
const READY_PREFIX_TLS: &str = "listening on https://";

/// The log, in the server's folder.
const LOG: &str = "server.log";

/// The data, in the server's folder.
const DATA: &str = "data";

/// The number of bytes of the log's end that is printed on failure.
const LOG_BYTES_SHOWN: usize = 16 * 1024;

/// How to start a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Configuration in addition to the defaults, as TOML.
    pub config: String,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The program; by default the one of the test profile.
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

/// The configuration for a disk of some hundred MiB, which is low by the default limits.
pub fn small_disk_settings() -> Settings {
    Settings::with_config(
        "[storage]\npreallocation_bytes_max = 1048576\ndisk_stop_free_bytes = 16777216\n\
         live_index_packets_max = 64\ndata_file_bytes_max = 262144\n",
    )
}

/// The ports for spans, if it has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtlpAddresses {
    /// Over gRPC.
    pub grpc: Option<SocketAddr>,
    /// Over HTTP.
    pub http: Option<SocketAddr>,
}

/// A running server on a free port of the loopback address. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    otlp: OtlpAddresses,
    data: PathBuf,
    log: PathBuf,
    settings: Settings,
    begin: Instant,
    /// The time from the start of the process to the ready line.
    ready_after: Duration,
    /// The time from the start of the process until all storages were recovered.
    recovered_after: Duration,
}

impl Server {
    /// Starts a server on this folder and waits until all storages are recovered.
    ///
    /// # Panics
    /// If it does not become ready; the message contains its log.
    pub fn start(folder: &Path, settings: &Settings) -> Self {
        match Self::try_start(folder, settings) {
            Ok(server) => server,
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts a server with the default configuration on a new folder, and a connection to it.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn fresh() -> (TempDir, Self, Api) {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let server = Self::start(folder.path(), &Settings::default());
        let api = server.api();
        (folder, server, api)
    }

    /// Starts a server that may refuse to start, and returns its output in that case.
    ///
    /// # Errors
    /// If the process exits, or prints nothing for two minutes.
    pub fn try_start(folder: &Path, settings: &Settings) -> Result<Self, String> {
        let mut server = Self::listening(folder, settings)?;
        server.try_wait_until_recovered()?;
        Ok(server)
    }

    /// Starts a server and waits until it accepts requests; storages may still be recovering.
    ///
    /// # Errors
    /// As for [`Self::try_start`].
    pub fn listening(folder: &Path, settings: &Settings) -> Result<Self, String> {
        let begin = Instant::now();
        let child = command(folder, settings).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("the server's program: {error}"));
        let log = folder.join(LOG);
        match ready_address(&mut child) {
            Some((address, otlp)) => Ok(Self {
                child,
                address,
                otlp,
                data: folder.join(DATA),
                log,
                settings: settings.clone(),
                begin,
                ready_after: begin.elapsed(),
                recovered_after: Duration::ZERO,
            }),
            None => {
                // The process may have exited already.
                child.kill().ok();
                let status = child.wait().expect("a child can be waited for");
                Err(format!(
                    "the server did not start ({status}):\n{}",
                    log_tail(&log)
                ))
            }
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ports for spans; they are off unless the settings say otherwise.
    pub fn otlp(&self) -> OtlpAddresses {
        self.otlp
    }

    /// `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// How long it took until it accepted requests.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// How long it took until all storages were recovered.
    pub fn recovered_after(&self) -> Duration {
        self.recovered_after
    }

    /// Waits until all storages are recovered.
    ///
    /// # Panics
    /// If that takes longer than a start may take.
    pub fn wait_until_recovered(&mut self) {
        if let Err(why) = self.try_wait_until_recovered() {
            panic!("{why}");
        }
    }

    fn try_wait_until_recovered(&mut self) -> Result<(), String> {
        let ended = |error| format!("the server ended while it recovered storages: {error}");
        let mut api = Api::new(Connection::open(self.address).map_err(ended)?);
        while api.is_recovering().map_err(ended)? {
            let waited = self.begin.elapsed();
            assert!(
                waited < READY_LIMIT,
                "storages are not recovered after {waited:?}"
            );
            thread::sleep(Duration::from_millis(5));
        }
        self.recovered_after = self.begin.elapsed();
        Ok(())
    }

    /// A new connection to it.
    ///
    /// # Panics
    /// If it does not accept the connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("a ready server accepts")
    }

    /// Its API over a new connection.
    pub fn api(&self) -> Api {
        Api::new(self.connect())
    }

    /// The peak resident memory so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("the server is running");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak.expect("the kernel reports the peak") << 10
    }

    /// The bytes that it has read so far by calls of the kernel: of files, and of most connections.
    /// Those that io_uring or the page cache alone moves are not among them.
    ///
    /// # Panics
    /// If it has exited.
    pub fn read_bytes(&self) -> u64 {
        let path = format!("/proc/{}/io", self.child.id());
        let counters = fs::read_to_string(path).expect("the server is running");
        let read = counters
            .lines()
            .find_map(|line| line.strip_prefix("rchar:"));
        let read = read.and_then(|read| read.trim().parse().ok());
        read.expect("the kernel counts what is read")
    }

    /// Full data files that this server arranged, and those before it in the same folder.
    pub fn files_arranged(&self) -> usize {
        self.log().matches("a full data file was arranged").count()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it as a crash would: SIGKILL, without delay.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Sends SIGTERM and does not wait.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill runs");
        assert!(status.success(), "the server has already exited");
    }

    /// Waits until it has exited.
    ///
    /// # Panics
    /// If it does not exit within the limit.
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

    /// Whether its process has ended.
    pub(crate) fn has_exited(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("a child can be waited for").is_some()
    }

    /// Starts it again; whether it became ready. It must have exited before.
    pub(crate) fn try_restart(&mut self) -> bool {
        match Self::try_start(&self.folder(), &self.settings) {
            Ok(server) => {
                *self = server;
                true
            }
            Err(_) => false,
        }
    }

    /// Restarts it and kills it after this time, ready or not. It must have exited before.
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

    /// Restarts it on the same folder with the same settings. It must have exited before.
    pub fn restart(&mut self) {
        let settings = self.settings.clone();
        self.restart_with(&settings);
    }

    /// As [`Self::restart_with`], but waits only until it accepts requests; storages may still be
    /// recovering.
    pub fn restart_listening(&mut self, settings: &Settings) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(
            ended.is_some(),
            "the server must exit before it is restarted"
        );
        let server = Self::listening(&self.folder(), settings);
        *self = server.unwrap_or_else(|why| panic!("{why}"));
    }

    /// Restarts it on the same folder with other settings. It must have exited before.
    pub fn restart_with(&mut self, settings: &Settings) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(
            ended.is_some(),
            "the server must exit before it is restarted"
        );
        *self = Self::start(&self.folder(), settings);
    }

    fn folder(&self) -> PathBuf {
        self.data
            .parent()
            .expect("the data folder is inside the test's folder")
            .to_owned()
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "the log of the server explains a failed test"
    )]
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            eprintln!("log of the server:\n{}", log_tail(&self.log));
        }
    }
}

/// The command that starts a server on this folder and appends its output to one log file.
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
        // Only one program can have the ports that OpenTelemetry prescribes.
        .env("TRACEHOLD_OTLP_GRPC_LISTEN", "off")
        .env("TRACEHOLD_OTLP_HTTP_LISTEN", "off")
        .envs(settings.environment.iter().cloned())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(log.expect("a test can write to its folder"));
    command
}

/// The addresses up to the ready line, or `None` if the output ends before it.
fn ready_address(child: &mut Child) -> Option<(SocketAddr, OtlpAddresses)> {
    let output = child.stdout.take().expect("standard output is a pipe");
    let (sender, receiver) = mpsc::sync_channel(1);
    // The thread lives as long as the server, so that the pipe never fills up.
    thread::spawn(move || {
        let mut otlp = OtlpAddresses::default();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let after = |prefix: &str| -> Option<SocketAddr> {
                let rest = &line[line.find(prefix)? + prefix.len()..];
                rest.split_whitespace().next()?.parse().ok()
            };
            otlp.grpc = otlp.grpc.or_else(|| after(GRPC_PREFIX));
            otlp.http = otlp.http.or_else(|| after(OTLP_PREFIX));
            let ready = after(READY_PREFIX).or_else(|| after(READY_PREFIX_TLS));
            if let Some(address) = ready {
                // After the time limit nobody receives it.
                sender.try_send((address, otlp)).ok();
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
