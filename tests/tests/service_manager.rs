//! systemd is told what the server does, and the unit is one that systemd accepts.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Server, Settings, traceholdd, without};

const LIMIT: Duration = Duration::from_secs(30);

/// The exposure that `systemd-analyze security` may find, of 100.
const EXPOSURE_MAX: &str = "12";

/// What a service manager receives.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn at_path(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self::new(socket, path.to_str().unwrap().to_owned())
    }

    fn abstract_one() -> Self {
        let name = format!("tracehold-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::new(
            UnixDatagram::bind_addr(&address).unwrap(),
            format!("@{name}"),
        )
    }

    fn new(socket: UnixDatagram, name: String) -> Self {
        let limit = Some(Duration::from_millis(200));
        socket.set_read_timeout(limit).unwrap();
        Self { socket, name }
    }

    /// The next message, if there is one within a moment.
    fn next(&self) -> Option<String> {
        let mut bytes = [0; 4096];
        let size = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..size].to_vec()).unwrap())
    }

    /// The next message with this line.
    fn wait_for(&self, line: &str) -> String {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            match self.next() {
                Some(message) if message.lines().any(|it| it == line) => return message,
                _ => {}
            }
        }
        panic!("no message with {line}");
    }
}

fn settings(manager: &Manager, watchdog: &str) -> Settings {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Settings {
        environment: vec![
            variable("NOTIFY_SOCKET", &manager.name),
            variable("WATCHDOG_USEC", watchdog),
        ],
        ..Settings::default()
    }
}

fn tells_everything(manager: &Manager) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings(manager, "300000"));
    let ready = manager.wait_for("READY=1");
    let status = format!("STATUS=accepting requests on {}", server.address());
    assert!(ready.lines().any(|line| line == status), "{ready}");
    for _ in 0..5 {
        manager.wait_for("WATCHDOG=1");
    }
    server.terminate();
    let stopping = manager.wait_for("STOPPING=1");
    assert!(stopping.contains("STATUS=finishing requests"), "{stopping}");
    assert!(server.wait(LIMIT).success());
}

#[test]
fn a_manager_is_told_that_the_server_is_ready_lives_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    tells_everything(&Manager::at_path(folder.path()));
    tells_everything(&Manager::abstract_one());
}

#[test]
fn without_a_watchdog_nothing_says_that_the_server_lives() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at_path(folder.path());
    let data = tempfile::tempdir().unwrap();
    let _server = Server::start(data.path(), &settings(&manager, "0"));
    manager.wait_for("READY=1");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let message = manager.next().unwrap_or_default();
        assert!(!message.contains("WATCHDOG"), "{message}");
    }
}

#[test]
fn a_manager_that_is_gone_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager {
        socket: UnixDatagram::unbound().unwrap(),
        name: "/nowhere/notify".to_owned(),
    };
    let server = Server::start(folder.path(), &settings(&manager, "300000"));
    server.api().create_storage("stored");
    assert!(
        server.log().contains("did not take a message"),
        "{}",
        server.log()
    );
}

/// The unit of the package, with the program under test.
fn unit(folder: &Path) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/traceholdd.service");
    let unit = std::fs::read_to_string(path).unwrap();
    let program = traceholdd();
    let text = unit.replace("/usr/bin/traceholdd", program.to_str().unwrap());
    assert_ne!(text, unit);
    let path = folder.join("traceholdd.service");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs `systemd-analyze`; it must succeed and find nothing.
fn analyze(arguments: &[&str]) -> String {
    let output = Command::new("systemd-analyze").args(arguments).output();
    let Ok(output) = output else {
        without("systemd-analyze");
        return String::new();
    };
    let found = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{found}{printed}");
    found
}

#[test]
fn systemd_accepts_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    // The pages of the manual belong to the package.
    let found = analyze(&[
        "verify",
        "--man=no",
        "--recursive-errors=no",
        &unit(folder.path()),
    ]);
    // A machine that does not run systemd has no list of the calls of its kernel.
    let ours: Vec<&str> = found
        .lines()
        .filter(|line| line.contains("traceholdd"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn the_unit_exposes_little() {
    let folder = tempfile::tempdir().unwrap();
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    analyze(&[
        "security",
        "--offline=true",
        &threshold,
        &unit(folder.path()),
    ]);
}
