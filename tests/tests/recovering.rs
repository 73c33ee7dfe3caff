//! After a start the port opens at once; until a storage is recovered, it is answered with 503, and
//! all others are served. A slow disk is a FIFO among the data files: opening it blocks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Agent, Api, Problem, Request, Server, Settings, payload, tracehold};
use serde_json::json;

use crate::finalization;
use crate::recording::{record_now, saver};

const COUNT: u64 = 30;

/// A server that was killed and started again; its second storage cannot be recovered yet.
struct Setting {
    folder: tempfile::TempDir,
    server: Server,
    settings: Settings,
    ready: String,
    slow: String,
    /// Keeps readers of the FIFO from waiting again.
    released: Option<File>,
}

impl Setting {
    /// `before_kill` gets the API and the slow storage.
    fn new(before_kill: impl FnOnce(&mut Api, &str)) -> Self {
        Self::with_config("", before_kill)
    }

    /// The server has more configuration of storages until it is killed.
    fn with_config(config: &str, before_kill: impl FnOnce(&mut Api, &str)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // One thread for the slow storage, one for the others.
        let recovery = "[storage]\nrecovery_threads = 2\n";
        let before = Settings::with_config(&format!("{recovery}{config}"));
        let mut server = Server::start(folder.path(), &before);
        let mut api = server.api();
        let ready = api.create_storage("ready");
        let slow = api.create_storage("slow");
        for storage in [&ready, &slow] {
            let agent = Agent::declare(&mut api, storage, "host", "stream", "none");
            for sequence in 0..COUNT {
                agent.push(&mut api, sequence, &payload(1, sequence, 5_000));
            }
        }
        before_kill(&mut api, &slow);
        drop(api);
        server.kill();
        let setting = Self {
            folder,
            server,
            settings: Settings::with_config(recovery),
            ready,
            slow,
            released: None,
        };
        let made = Command::new("mkfifo").arg(setting.fifo()).status();
        assert!(made.unwrap().success());
        setting.restarted()
    }

    fn restarted(mut self) -> Self {
        self.server.restart_listening(&self.settings);
        let mut api = self.server.api();
        let begin = Instant::now();
        while api.state(&self.ready) != "OPEN" {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{}",
                self.server.log()
            );
            std::thread::yield_now();
        }
        self
    }

    fn fifo(&self) -> PathBuf {
        let storages = self.server.data().join("storages");
        storages.join(&self.slow).join("0000000000000063.itdata")
    }

    /// Lets the recovery go on, and waits for its end.
    fn release(&mut self) {
        self.released = Some(unblock(&self.fifo(), self.folder.path()));
        self.server.wait_until_recovered();
    }

    fn agent(&self, storage: &str) -> Agent {
        Agent::new(storage, "host", "stream")
    }
}

/// Replaces a FIFO by an empty file, and lets a reader that waits for it go on. One that opens it
/// later does not wait while the returned file is open.
fn unblock(fifo: &Path, folder: &Path) -> File {
    let away = folder.join("fifo");
    fs::rename(fifo, &away).unwrap();
    fs::write(fifo, b"").unwrap();
    File::options().read(true).write(true).open(away).unwrap()
}

fn check_recovering(problem: &Problem) {
    let shown = &problem.document;
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (503, "storage_recovering"),
        "{shown}"
    );
    assert!(problem.retry_after.is_some(), "{shown}");
    let bytes = |field: &str| shown[field].as_u64().unwrap();
    assert!(bytes("bytes_total") > bytes("bytes_scanned"), "{shown}");
}

#[test]
fn the_port_opens_before_all_storages_are_recovered() {
    let mut setting = Setting::new(|_, _| {});
    let mut api = setting.server.api();
    let live = api.send(&Request::new("GET", "/livez")).unwrap();
    assert_eq!(live.status, 200, "{}", live.brief());
    let ready = Problem::of(&api.send(&Request::new("GET", "/readyz")).unwrap());
    assert_eq!((ready.status, ready.code.as_str()), (503, "recovering"));
    assert!(ready.retry_after.is_some());
    assert_eq!(
        ready.document["recovering_storages"], 1,
        "{}",
        ready.document
    );
    assert!(ready.document["bytes_total"].as_u64().unwrap() > COUNT * 5_000);
    assert!((api.metric("tracehold_storage_recovering_storages") - 1.0).abs() < 0.5);

    let shown = api.storage(&setting.slow);
    assert_eq!(shown["state"], "RECOVERING", "{shown}");
    assert!(
        shown["recovery"]["bytes_total"].as_u64().unwrap() > 0,
        "{shown}"
    );
    assert_eq!(api.storage(&setting.ready)["recovery"], json!(null));
    for (state, id) in [("OPEN", &setting.ready), ("recovering", &setting.slow)] {
        let listed = api.done("GET", &format!("/storages?state={state}"), None);
        let items = listed["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{listed}");
        assert_eq!(items[0]["id"], json!(id), "{listed}");
    }
    let of_slow = |path: &str| format!("/storages/{}{path}", setting.slow);
    for (method, path) in [
        ("GET", of_slow("/descriptors")),
        ("GET", of_slow("/files")),
        ("GET", of_slow("/packets/0")),
        ("GET", of_slow("/status")),
        ("POST", of_slow("/finalize")),
        ("POST", of_slow("/verify")),
        ("GET", of_slow("/export")),
    ] {
        check_recovering(&api.refused(method, &path, None));
    }
    for path in ["/query".to_owned(), of_slow("/query")] {
        check_recovering(&api.refused("POST", &path, Some(&json!({}))));
    }
    let agent = setting.agent(&setting.slow);
    check_recovering(&agent.refused(&mut api, COUNT, &payload(1, COUNT, 100)));
    let file = format!("/storage/{}/0000000000000000.itdata", setting.slow);
    check_recovering(&Problem::of(
        &api.send(&Request::new("GET", &file)).unwrap(),
    ));
    let head = api.send(&Request::new("HEAD", agent.path())).unwrap();
    assert_eq!(head.status, 503, "{}", head.brief());
    assert_eq!(head.header("tracehold-next-sequence"), None);

    let others = setting.agent(&setting.ready);
    assert_eq!(others.next_sequence(&mut api), COUNT);
    others.push(&mut api, COUNT, &payload(1, COUNT, 100));
    setting.release();
    assert_eq!(api.state(&setting.slow), "OPEN");
    assert_eq!(agent.next_sequence(&mut api), COUNT);
    let again = agent.push(&mut api, 3, &payload(1, 3, 5_000));
    assert!(again.duplicate, "{again:?}");
    agent.push(&mut api, COUNT, &payload(1, COUNT, 100));
    assert!(api.verify(&setting.slow).is_empty());
}

#[test]
fn a_stop_and_a_kill_during_recovery_lose_nothing() {
    let mut setting = Setting::new(|_, _| {});
    let mut api = setting.server.api();
    let others = setting.agent(&setting.ready);
    others.push(&mut api, COUNT, &payload(1, COUNT, 100));
    drop(api);
    setting.server.terminate();
    // The thread that waits for the disk must not hold up the end.
    let status = setting.server.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", setting.server.log());
    let mut setting = setting.restarted();
    let mut api = setting.server.api();
    let others = setting.agent(&setting.ready);
    others.push(&mut api, COUNT + 1, &payload(1, COUNT + 1, 100));
    setting.server.kill();
    let mut setting = setting.restarted();
    setting.release();
    let mut api = setting.server.api();
    for (storage, count) in [(&setting.ready, COUNT + 2), (&setting.slow, COUNT)] {
        assert_eq!(setting.agent(storage).next_sequence(&mut api), count);
        assert!(api.verify(storage).is_empty());
        assert_eq!(api.storage(storage)["packets"], count);
    }
}

#[test]
fn an_interrupted_finalization_continues_when_its_storage_is_recovered() {
    let config = "arranging_bytes_per_second_max = 1\ndata_file_bytes_max = 65536\n\
                  full_file_arranging_bytes_per_second_max = 0\n";
    let mut setting = Setting::with_config(config, |api, slow| {
        finalization::push(api, slow, 0..20);
        finalization::begin(api, slow);
    });
    let mut api = setting.server.api();
    assert_eq!(api.state(&setting.slow), "RECOVERING");
    for action in ["finalize", "verify"] {
        let path = format!("/api/v1/storages/{}/{action}", setting.slow);
        let request = Request::new("POST", &path).header("prefer", "respond-async");
        check_recovering(&Problem::of(&api.send(&request).unwrap()));
    }
    let jobs = api.done("GET", "/jobs", None);
    assert_eq!(jobs["items"], json!([]));
    drop(api);
    // The finalization waits for the storage; the stop waits for neither.
    setting.server.terminate();
    let status = setting.server.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", setting.server.log());
    let mut setting = setting.restarted();
    setting.release();
    let mut api = setting.server.api();
    finalization::wait_for_state(&mut api, &setting.slow, "FINALIZED");
    let packets = COUNT + 20 * finalization::STREAMS;
    assert_eq!(api.storage(&setting.slow)["packets"], packets);
    assert!(api.verify(&setting.slow).is_empty());
}

#[test]
fn a_push_of_the_command_waits_for_the_recovery() {
    let mut setting = Setting::new(|_, _| {});
    let trace = setting.folder.path().join("trace.txt");
    fs::write(&trace, payload(7, 7, 300_000)).unwrap();
    let push = Command::new(tracehold())
        .args([
            "push",
            "--server",
            &setting.server.url(),
            "--storage",
            "slow",
        ])
        .args(["--agent", "command", "--stream", "trace", "--kind", "raw"])
        .arg(&trace)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut api = setting.server.api();
    let refused = "tracehold_http_requests_total{route=\"packets\",status=\"5xx\"}";
    let begin = Instant::now();
    while !has_line(&mut api, refused) {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the command did not push"
        );
        std::thread::yield_now();
    }
    // The wait for the second attempt is announced when the first one was refused.
    std::thread::sleep(Duration::from_millis(1_500));
    setting.release();
    let output = push.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = errors.matches("waiting for the server: ").count();
    assert!((1..=2).contains(&said), "each reason once: {errors}");
    assert!(api.storage(&setting.slow)["packets"].as_u64().unwrap() > COUNT);
}

/// Whether a counter is above zero.
fn has_line(api: &mut Api, name: &str) -> bool {
    let response = api.send(&Request::new("GET", "/metrics")).unwrap();
    let text = String::from_utf8(response.body).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    lines.any(|value| value.trim() != "0")
}

#[test]
fn packets_without_a_storage_wait_for_the_recordings_that_resume() {
    let (mut stored, mut recording) = (0, String::new());
    let mut setting = Setting::new(|api, slow| {
        (recording, _) = record_now(api, json!({ "processors": saver(), "storage": slow }));
        let agent = fan_out();
        for sequence in 0..COUNT {
            agent.push(api, sequence, &payload(2, sequence, 700));
        }
        stored = api.storage(slow)["packets"].as_u64().unwrap();
    });
    let mut api = setting.server.api();
    let agent = fan_out();
    let head = api.send(&Request::new("HEAD", agent.path())).unwrap();
    assert_eq!(head.status, 503, "{}", head.brief());
    check_recovering(&agent.refused(&mut api, COUNT, &payload(2, COUNT, 700)));
    let path = format!("/recordings/{recording}");
    check_recovering(&api.refused("DELETE", &path, None));
    // Spans have no position by which a repeat would be recognized.
    let spans = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
        "name": "sent while the storage is recovered",
        "startTimeUnixNano": "1795226501877000000", "endTimeUnixNano": "1795226501878000000",
    }] }] }] });
    let spans = spans.to_string();
    let send_spans = |api: &mut Api| {
        let request = Request::new("POST", "/v1/traces")
            .header("content-type", "application/json")
            .body(spans.as_bytes());
        api.send(&request).unwrap()
    };
    let refused = send_spans(&mut api);
    assert_eq!(refused.status, 503, "{}", refused.brief());
    assert!(refused.header("retry-after").is_some());
    setting.release();
    let accepted = send_spans(&mut api);
    assert_eq!(accepted.status, 200, "{}", accepted.brief());
    stored += 1;
    assert_eq!(agent.next_sequence(&mut api), COUNT);
    // Neither a repeat nor what was refused is lost or stored twice.
    for sequence in COUNT - 2..COUNT + 3 {
        agent.push(&mut api, sequence, &payload(2, sequence, 700));
    }
    assert_eq!(api.storage(&setting.slow)["packets"], stored + 3);
    assert!(api.verify(&setting.slow).is_empty());
}

/// The stream of [`Setting`], pushed to the recordings. Its epoch follows the one that was pushed
/// into the storage.
fn fan_out() -> Agent {
    let mut agent = Agent::of_path("/api/v1/agents/host/streams/stream/packets");
    agent.epoch = 2;
    agent
}
