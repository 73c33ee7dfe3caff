//! A full disk: pushes are refused with 507, reads work all the time, and ingest resumes by itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::spans::{TestSpan, packets, request, send, send_spans, spans};
use harness::{Agent, Api, Request, Server, Settings, payload};
use serde_json::json;

use super::recording::{record_now, saver, span, stop, wait_for};

const DISK_MIB: usize = 192;

/// Below 20 % (38 MiB) ingest stops, above 40 % (77 MiB) it resumes.
const CONFIG: &str = "[storage]\nio = \"blocking\"\npreallocation_bytes_max = 1048576\n\
                      disk_stop_free_bytes = 1048576\ndisk_stop_free_percent = 20\n\
                      disk_resume_free_percent = 40\n";

/// Nobody looks at the free space: writes fail when there is none.
const UNWATCHED: &str = "[storage]\nio = \"blocking\"\npreallocation_bytes_max = 0\n\
                         disk_stop_free_bytes = 0\ndisk_stop_free_percent = 0\n\
                         disk_resume_free_percent = 0\n[recording]\nstanding = false\n";

/// A small file system in memory; unmounted when it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// `None` if this user may not mount.
    #[expect(clippy::print_stdout, reason = "a case that was skipped says so")]
    fn mount(folder: &'a Path) -> Option<Self> {
        let size = format!("size={DISK_MIB}m");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: mounting a small disk is not allowed here");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily, so that a server that is still exiting does not block it.
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

#[test]
fn ingest_stops_on_a_low_disk_and_resumes_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
    let mut api = server.api();
    let other = api.create_storage("to be deleted");
    let storage = api.create_storage("low");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let first = agent.next_sequence(&mut api);
    let stored = agent.push(&mut api, first, &payload(1, 1, 100_000));

    let push_next = |api: &mut Api| {
        let next = agent.next_sequence(api);
        agent.post(api, next, b"more").unwrap()
    };

    let refused = |api: &mut Api| api.metric("tracehold_storage_refused_disk_low_total");
    assert_eq!(refused(&mut api), 0.0);
    let filler = folder.path().join("filler");
    fs::write(&filler, vec![1; (DISK_MIB - 20) << 20]).unwrap();
    // Packets are accepted until the server checks the disk.
    let refusal = poll(|| {
        let response = push_next(&mut api);
        (response.status == 507).then_some(response)
    });
    assert_eq!(refused(&mut api), 1.0);
    assert!(
        refusal.header("retry-after").is_some(),
        "{}",
        refusal.brief()
    );
    assert_eq!(
        api.packet(&storage, stored.number),
        payload(1, 1, 100_000),
        "reads go on"
    );
    api.done("DELETE", &format!("/storages/{other}"), None);

    // Between the two limits nothing changes: no flapping.
    // Truncated, not rewritten: that would free all of it for a moment.
    let file = fs::OpenOptions::new().write(true).open(&filler).unwrap();
    file.set_len(((DISK_MIB - 60) as u64) << 20).unwrap();
    drop(file);
    let (waited, mut refusals) = (Instant::now(), 1.0);
    while waited.elapsed() < Duration::from_secs(3) {
        assert_eq!(push_next(&mut api).status, 507, "too early");
        refusals += 1.0;
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(refused(&mut api), refusals);

    fs::remove_file(&filler).unwrap();
    let accepted = poll(|| {
        let response = push_next(&mut api);
        (response.status == 200).then_some(response)
    });
    assert!(accepted.json()["receipts"][0]["durable"].as_bool().unwrap());
    api.finalize(&storage);
    assert!(api.verify(&storage).is_empty());
}

#[test]
fn recordings_are_suspended_while_the_disk_is_low() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
    let mut api = server.api();
    let chain = json!({ "processors": saver(), "auto_finalize": true });
    let (id, storage) = record_now(&mut api, chain);
    let span = |trace| TestSpan {
        trace,
        id: 1,
        parent: 0,
        name: "before",
        time: (1, 2),
    };
    let mut accepted = 0;
    let mut try_send = |api: &mut Api| {
        let body = request("shop", &[span(accepted + 1)]);
        let response = send(api, "application/json", body.as_bytes());
        accepted += u64::from(response.status == 200);
        (response, accepted)
    };
    assert_eq!(try_send(&mut api).0.status, 200);
    assert_eq!(api.metric("tracehold_recordings_suspended"), 0.0);
    let filler = folder.path().join("filler");
    fs::write(&filler, vec![1; (DISK_MIB - 20) << 20]).unwrap();
    wait_for(&mut api, &id, "SUSPENDED");
    // Both this recording and the standing one.
    poll(|| (api.metric("tracehold_recordings_suspended") == 2.0).then_some(()));
    // Senders are told to try again, and what is refused is in the buffer neither.
    let buffered = api.done("GET", "/buffer", None)["packets"].clone();
    let (refusal, _) = try_send(&mut api);
    assert_eq!(refusal.status, 503, "{}", refusal.brief());
    assert!(
        refusal.header("retry-after").is_some(),
        "{}",
        refusal.brief()
    );
    assert_eq!(refusal.json()["code"], 14);
    assert_eq!(api.done("GET", "/buffer", None)["packets"], buffered);
    let push = Request::new("POST", "/api/v1/agents/shop/streams/traces/packets")
        .header("content-type", "application/octet-stream")
        .header("tracehold-epoch", "0")
        .header("tracehold-sequence", "0")
        .body(b"\n\0");
    let pushed = api.send(&push).unwrap();
    assert_eq!(pushed.status, 507, "{}", pushed.brief());

    fs::remove_file(&filler).unwrap();
    let resumed = poll(|| {
        let (response, accepted) = try_send(&mut api);
        (response.status == 200).then_some(accepted)
    });
    wait_for(&mut api, &id, "ON");
    assert_eq!(resumed, packets(&mut api, &storage).len() as u64);
    let stopped = stop(&mut api, &id);
    assert_eq!(stopped["counts"]["packets"], resumed, "{stopped}");
    assert_eq!(api.state(&storage), "FINALIZED");
    let log = server.log();
    for part in ["the recording is suspended", "the recording resumes"] {
        assert!(log.contains(part), "{log}");
    }
}

/// Spans wait in the chain of a recording for others of their invocation. What is made of them when
/// the recording is stopped has no place on a low disk, and the recording says how much that is.
#[test]
fn derived_packets_that_a_low_disk_refuses_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let waiting = "[recording]\nwaiting_milliseconds = 60000\nstanding = false\n";
    let config = format!("{CONFIG}{waiting}");
    let server = Server::start(folder.path(), &Settings::with_config(&config));
    let mut api = server.api();
    let metric = "tracehold_recorded_derived_refused_packets";
    let record = |api: &mut Api| {
        let (id, storage) = record_now(api, json!({ "name": "derived" }));
        send_spans(api, "shop", &[span(1, 2, 1, "look"), span(1, 1, 0, "buy")]);
        (id, storage)
    };
    // With space nothing is refused.
    let (id, storage) = record(&mut api);
    let whole = stop(&mut api, &id);
    let streams = spans(&mut api, &storage);
    let derived = streams.keys().filter(|stream| *stream != "traces").count();
    assert!(derived >= 3, "{streams:?}");
    let counts = |stopped: &serde_json::Value| {
        ["packets", "derived_packets", "derived_refused"]
            .map(|name| stopped["counts"][name].clone())
    };
    assert_eq!(
        counts(&whole),
        [json!(1), json!(derived), json!(0)],
        "{whole}"
    );
    assert_eq!(api.metric(metric), 0.0);

    let (id, storage) = record(&mut api);
    let filler = folder.path().join("filler");
    fs::write(&filler, vec![1; (DISK_MIB - 20) << 20]).unwrap();
    wait_for(&mut api, &id, "SUSPENDED");
    let cut = stop(&mut api, &id);
    assert_eq!(
        counts(&cut),
        [json!(1), json!(derived), json!(derived)],
        "{cut}"
    );
    assert_eq!(api.metric(metric), derived as f64);
    // What was acknowledged is there.
    let streams = spans(&mut api, &storage);
    assert_eq!(streams.keys().collect::<Vec<_>>(), ["traces"]);
    assert_eq!(streams["traces"].len(), 2);
}

/// Nothing warns before the last byte of the disk is used. Spans are refused then as always:
/// the sender keeps them and tries again, and what was acknowledged is stored once.
#[test]
fn spans_on_a_full_disk_are_refused_until_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let mut server = Server::start(folder.path(), &Settings::with_config(UNWATCHED));
    let mut api = server.api();
    let (id, storage) = record_now(&mut api, json!({ "processors": saver() }));
    let (mut sent, mut acknowledged) = (0, BTreeSet::new());
    let mut try_send = |api: &mut Api| {
        sent += 1;
        let body = request("shop", &[span(sent, 1, 0, "buy")]);
        let response = send(api, "application/json", body.as_bytes());
        if response.status == 200 {
            acknowledged.insert(format!("{sent:032x}"));
        }
        response
    };
    assert_eq!(try_send(&mut api).status, 200);
    let filler = folder.path().join("filler");
    fill(&filler);
    // A block that is written in part has room.
    let refusal = poll(|| {
        let response = try_send(&mut api);
        (response.status != 200).then_some(response)
    });
    for refusal in [refusal, try_send(&mut api), try_send(&mut api)] {
        assert_eq!(refusal.status, 503, "{}", refusal.brief());
        let seconds = refusal.header("retry-after").unwrap();
        assert!(seconds.parse::<u32>().unwrap() >= 1, "{}", refusal.brief());
        assert_eq!(refusal.json()["code"], 14, "{}", refusal.brief());
    }

    fs::remove_file(&filler).unwrap();
    poll(|| (try_send(&mut api).status == 200).then_some(()));
    for _ in 0..5 {
        assert_eq!(try_send(&mut api).status, 200);
    }
    let stored = |api: &mut Api| {
        let rows = spans(api, &storage).remove("traces").unwrap();
        let ids: Vec<_> = rows
            .iter()
            .map(|row| row["args.trace_id"].clone())
            .collect();
        ids
    };
    let expected: Vec<_> = acknowledged.into_iter().collect();
    assert_eq!(stored(&mut api), expected);
    drop(api);
    server.kill();
    server.restart();
    let mut api = server.api();
    assert_eq!(stored(&mut api), expected, "after a restart");
    stop(&mut api, &id);
    api.finalize(&storage);
    assert!(api.verify(&storage).is_empty());
}

/// Writes a file until nothing more can be written anywhere.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

/// Repeats a request until it succeeds, for a while: free space is checked once a second.
fn poll<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "nothing changed within 20 s"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
