//! What systemd is told: that the server is ready, stops, what it does, and that it lives.
//!
//! The protocol is `sd_notify(3)`: lines `NAME=VALUE` in one datagram to the socket that
//! `NOTIFY_SOCKET` names. A server that is not started by a service manager sends nothing
//! (`docs/decisions/0160-a-watchdog-for-dead-threads.md`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::app_state::AppState;
use crate::connection::Stage;

/// How often the status is compared with what was sent, at least.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// The service manager that started this process.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often it wants to hear that the process lives.
    watchdog: Option<Duration>,
}

/// What the server does, and why it does not live although it runs.
struct Report {
    status: String,
    dead: Option<String>,
}

impl ServiceManager {
    /// The one that the environment names. One that cannot be reached is logged: the server works
    /// without it, and the manager finds out by itself.
    pub(crate) fn of_environment() -> Option<Arc<Self>> {
        let name = std::env::var_os("NOTIFY_SOCKET")?;
        let text = |variable| std::env::var(variable).ok();
        let watchdog = watchdog_interval(text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
        match Self::at(&name, watchdog) {
            Ok(manager) => Some(Arc::new(manager)),
            Err(error) => {
                tracing::warn!(
                    socket = %name.to_string_lossy(), %error,
                    "the service manager cannot be told that the server is ready; NOTIFY_SOCKET \
                     must be an absolute path, or @ and a name"
                );
                None
            }
        }
    }

    fn at(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A manager whose queue is full must not hold the runtime.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            address: address_of(name.as_bytes())?,
            watchdog,
        })
    }

    /// The server accepts requests.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\n{}", status_line(status)));
    }

    /// The server shuts down.
    pub(crate) fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\n{}", status_line(status)));
    }

    fn send(&self, message: &str) {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        if let Err(error) = sent {
            let message = message.trim_end();
            tracing::warn!(%error, message, "the service manager did not take a message");
        }
    }

    /// Sends the status when it changes and, as often as the watchdog wants, that the server lives:
    /// only while it does. Ends when the server stops.
    async fn report(&self, mut sent: String, report: impl Fn() -> Report) {
        // Two messages may be late or lost.
        let interval = self.watchdog.map_or(STATUS_INTERVAL, |watchdog| {
            (watchdog / 3).min(STATUS_INTERVAL)
        });
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut was_alive = true;
        loop {
            ticks.tick().await;
            let Report { status, dead } = report();
            let mut message = String::new();
            if status != sent {
                message.push_str(&status_line(&status));
                sent = status;
            }
            match dead {
                None if self.watchdog.is_some() => message.push_str("WATCHDOG=1\n"),
                Some(reason) if was_alive && self.watchdog.is_some() => {
                    was_alive = false;
                    tracing::error!(
                        reason,
                        "the service manager is not told any more that the server lives, so that \
                         it starts it again"
                    );
                }
                _ => {}
            }
            if !message.is_empty() {
                self.send(&message);
            }
        }
    }
}

/// Keeps the service manager informed until the process ends; `status` is what it knows already.
pub(crate) async fn keep_informed(
    manager: Arc<ServiceManager>,
    app: Arc<AppState>,
    status: String,
    mut stage: watch::Receiver<Stage>,
) {
    let serving = status.clone();
    let stopping = async {
        // Without a sender, the server has shut down.
        drop(stage.wait_for(|stage| *stage > Stage::Running).await);
        manager.stopping("finishing requests, then committing");
    };
    // While it commits the server must live, too.
    let living = manager.report(status, || report_of(&app, &serving));
    let ((), ()) = tokio::join!(stopping, living);
}

/// What the server does, from what it knows of itself. Tasks that have ended make it degraded and
/// not dead: it goes on taking packets and answering.
fn report_of(app: &AppState, serving: &str) -> Report {
    let dead = app.engine.failures(0).io_thread;
    let status = if app.is_draining() {
        "finishing requests, then committing".to_owned()
    } else if let Some(reason) = &dead {
        format!("cannot write: {reason}")
    } else if let Some(reason) = app.engine.disk_failure() {
        format!("the disk does not work: {reason}")
    } else if let Some(recovery) = app.engine.recovery() {
        format!("{serving}; recovering {} storages", recovery.storages)
    } else {
        serving.to_owned()
    };
    Report { status, dead }
}

/// A line of a message. A value ends at the end of its line.
fn status_line(status: &str) -> String {
    format!("STATUS={}\n", status.replace(['\n', '\r'], " "))
}

/// The interval, unless it is meant for another process.
fn watchdog_interval(microseconds: Option<String>, process: Option<String>) -> Option<Duration> {
    let is_ours = process.is_none_or(|process| process.parse() == Ok(std::process::id()));
    let microseconds: u64 = microseconds?.parse().ok()?;
    (is_ours && microseconds > 0).then(|| Duration::from_micros(microseconds))
}

/// A path, or the name of an abstract socket after `@`.
fn address_of(name: &[u8]) -> io::Result<SocketAddr> {
    match name {
        [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(name)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_watchdog_is_for_one_process() {
        let own = std::process::id().to_string();
        let text = |text: &str| Some(text.to_owned());
        for (interval, process, wanted) in [
            (text("1500000"), None, Some(Duration::from_millis(1500))),
            (
                text("10"),
                Some(own.clone()),
                Some(Duration::from_micros(10)),
            ),
            (text("10"), text("1"), None),
            (text("10"), text("x"), None),
            (text("0"), None, None),
            (text("soon"), None, None),
            (None, Some(own), None),
        ] {
            let found = watchdog_interval(interval.clone(), process.clone());
            assert_eq!(found, wanted, "{interval:?} {process:?}");
        }
    }

    #[test]
    fn addresses_are_paths_or_abstract_names() {
        for (name, is_one) in [
            ("/run/notify", true),
            ("@name", true),
            ("", false),
            ("@", false),
            ("notify", false),
            ("vsock:2:1", false),
        ] {
            assert_eq!(address_of(name.as_bytes()).is_ok(), is_one, "{name:?}");
        }
    }

    #[tokio::test]
    async fn a_dead_server_does_not_say_that_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let watchdog = Some(Duration::from_millis(30));
        let manager = ServiceManager::at(path.as_os_str(), watchdog).unwrap();
        let is_dead = Arc::new(AtomicBool::new(false));
        let dead = Arc::clone(&is_dead);
        let reporting = tokio::spawn(async move {
            let report = || Report {
                status: "two\nlines".to_owned(),
                dead: dead.load(Ordering::Relaxed).then(|| "a panic".to_owned()),
            };
            manager.report(String::new(), report).await;
        });
        let mut bytes = [0; 256];
        let mut messages = Vec::new();
        while messages.len() < 5 {
            match socket.recv(&mut bytes) {
                Ok(size) => messages.push(String::from_utf8_lossy(&bytes[..size]).into_owned()),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        assert_eq!(messages[0], "STATUS=two lines\nWATCHDOG=1\n");
        assert!(
            messages[1..]
                .iter()
                .all(|message| message == "WATCHDOG=1\n")
        );
        is_dead.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        while socket.recv(&mut bytes).is_ok() {}
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(socket.recv(&mut bytes).is_err(), "it said that it lives");
        reporting.abort();
    }
}
