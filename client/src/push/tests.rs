use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::json;
use storage_format::Kind;
use storage_format::batch::{RECORD_HEADER_BYTES, RecordHeader};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::*;
use crate::testing::{Request, Response, TestServer, answer, json as json_answer};

/// A model of a server that stores each packet exactly once.
#[derive(Default)]
struct Model {
    /// Packets by path of the stream, epoch and sequence.
    streams: BTreeMap<String, BTreeMap<(u64, u64), Bytes>>,
    declared: Vec<String>,
    /// Breaks the connection once, after storing this many packets without acknowledging the last.
    breaks_after: Option<usize>,
    duplicates: usize,
    /// The provenance reports received.
    provenance: Vec<serde_json::Value>,
    refuses_provenance: bool,
}

impl Model {
    fn answer(&mut self, request: &Request) -> Option<Response> {
        let path = request.uri().path().to_owned();
        match request.method().as_str() {
            "PUT" if path.ends_with("/provenance") => {
                self.declared.push(path);
                if self.refuses_provenance {
                    return Some(json_answer(404, json!({ "code": "route_not_found" })));
                }
                self.provenance
                    .push(serde_json::from_slice(request.body()).unwrap());
                Some(json_answer(200, "{}"))
            }
            "PUT" => {
                self.declared.push(path);
                Some(json_answer(200, "{}"))
            }
            "HEAD" => {
                let newest = self
                    .streams
                    .get(&path)
                    .and_then(|stream| stream.last_key_value());
                let (epoch, next) = newest.map_or((0, 0), |((epoch, last), _)| (*epoch, last + 1));
                let (epoch, next) = (epoch.to_string(), next.to_string());
                let headers = [
                    ("tracehold-epoch", &*epoch),
                    ("tracehold-next-sequence", &next),
                ];
                Some(answer(200, &headers, ""))
            }
            "GET" if path.contains("/storages/") => Some(json_answer(
                200,
                json!({ "id": Uuid::nil(), "state": "OPEN" }),
            )),
            _ => self.take(&path, request.body()),
        }
    }

    fn take(&mut self, path: &str, body: &Bytes) -> Option<Response> {
        let stream = self.streams.entry(path.to_owned()).or_default();
        let mut rest = body.clone();
        let mut receipts = Vec::new();
        while !rest.is_empty() {
            let head = rest.split_to(RECORD_HEADER_BYTES);
            let header = RecordHeader::decode(&head[..].try_into().unwrap()).unwrap();
            let payload = rest.split_to(header.length as usize);
            let key = (header.position.epoch, header.position.sequence);
            let newest = stream.last_key_value().map(|(key, _)| *key);
            let duplicate = match stream.get(&key) {
                Some(first) => {
                    assert_eq!(first, &payload, "a repeat carries the same bytes");
                    self.duplicates += 1;
                    true
                }
                None => {
                    let follows = newest == Some((key.0, key.1.wrapping_sub(1)));
                    let begins = key.1 == 0 && newest.is_none_or(|newest| newest.0 < key.0);
                    if !follows && !begins {
                        let code = if newest.unwrap().0 > key.0 {
                            "epoch_stale"
                        } else {
                            "gap"
                        };
                        return Some(json_answer(409, json!({ "code": code })));
                    }
                    stream.insert(key, payload);
                    self.breaks_after = self.breaks_after.map(|left| left - 1);
                    if self.breaks_after == Some(0) {
                        self.breaks_after = None;
                        return None;
                    }
                    false
                }
            };
            receipts.push(json!({
                "epoch": key.0, "sequence": key.1, "durable": true, "duplicate": duplicate,
            }));
        }
        Some(json_answer(200, json!({ "receipts": receipts })))
    }

    /// The packets of the newest epoch of the only stream, joined.
    fn content(&self) -> Vec<u8> {
        assert_eq!(self.streams.len(), 1);
        let stream = self.streams.first_key_value().unwrap().1;
        let Some(((epoch, _), _)) = stream.last_key_value() else {
            return Vec::new();
        };
        stream
            .range((*epoch, 0)..)
            .flat_map(|(_, packet)| packet.to_vec())
            .collect()
    }

    fn packet_count(&self) -> usize {
        self.streams.values().map(BTreeMap::len).sum()
    }
}

async fn start() -> (TestServer, Arc<Mutex<Model>>) {
    let model = Arc::new(Mutex::new(Model::default()));
    let shared = Arc::clone(&model);
    let server = TestServer::start(move |request| shared.lock().unwrap().answer(request)).await;
    (server, model)
}

fn options() -> PushOptions {
    PushOptions {
        storage: Some(Uuid::from_u128(7)),
        packet_bytes: 1024,
        streams_max: 2,
        in_flight_bytes_max: 1 << 20,
        follow: None,
    }
}

fn silent() -> Watch {
    Arc::new(|_| {})
}

fn lines(count: usize) -> String {
    let line = |n| format!("{{\"id\":{n},\"ph\":\"X\"}}\n");
    (0..count).map(line).collect()
}

/// A server, and a file of this many lines.
async fn start_with(count: usize) -> (TempDir, PathBuf, TestServer, Arc<Mutex<Model>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pfw");
    fs::write(&path, lines(count)).unwrap();
    let (server, model) = start().await;
    (folder, path, server, model)
}

/// Follows the file at `path` until the returned switch is set.
fn follow(
    server: &TestServer,
    path: &Path,
    configure: impl FnOnce(Follow) -> Follow,
) -> (
    Arc<AtomicBool>,
    JoinHandle<Result<Vec<StreamReport>, ClientError>>,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let journals = path.with_file_name("journals");
    let follow = Follow {
        poll_every: Duration::from_millis(1),
        ..Follow::new(Arc::clone(&stop), journals)
    };
    let options = PushOptions {
        follow: Some(configure(follow)),
        ..options()
    };
    let plan = Plan::of(&[path.to_owned()], &PlanOptions::default()).unwrap();
    let client = server.client();
    let pushing = tokio::spawn(async move { push(&client, plan, &options, &silent()).await });
    (stop, pushing)
}

async fn push_file(server: &TestServer, path: &Path) -> Result<StreamReport, ClientError> {
    let plan = Plan::of(&[path.to_owned()], &PlanOptions::default())?;
    let mut reports = push(&server.client(), plan, &options(), &silent()).await?;
    Ok(reports.remove(0))
}

#[tokio::test]
async fn a_file_pushed_again_resumes_at_the_servers_position() {
    let (_folder, path, server, model) = start_with(1000).await;

    let first = push_file(&server, &path).await.unwrap();
    assert_eq!((first.resumed_at, first.kind), (0, Kind::Dft));
    assert_eq!(model.lock().unwrap().content(), lines(1000).as_bytes());

    let again = push_file(&server, &path).await.unwrap();
    assert_eq!((again.resumed_at, again.packets), (first.packets, 0));
    assert_eq!(again.epoch, first.epoch);

    // A crash of the server that lost what was not acknowledged.
    model
        .lock()
        .unwrap()
        .streams
        .first_entry()
        .unwrap()
        .get_mut()
        .retain(|key, _| key.1 < 3);
    let resumed = push_file(&server, &path).await.unwrap();
    assert_eq!(
        (resumed.resumed_at, resumed.packets),
        (3, first.packets - 3)
    );
    assert_eq!(model.lock().unwrap().content(), lines(1000).as_bytes());
}

#[tokio::test]
async fn a_rewritten_file_is_pushed_again_and_an_older_one_is_refused() {
    let (_folder, path, server, model) = start_with(0).await;
    let now = SystemTime::now();
    let write = |count, time| {
        fs::write(&path, lines(count)).unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    write(500, now);
    push_file(&server, &path).await.unwrap();
    write(300, now + Duration::from_secs(1));
    let report = push_file(&server, &path).await.unwrap();
    assert_eq!(report.resumed_at, 0);
    assert_eq!(model.lock().unwrap().content(), lines(300).as_bytes());
    write(200, now - Duration::from_secs(1));
    let error = push_file(&server, &path).await.unwrap_err();
    assert!(error.is_refused_as("epoch_stale"));
    assert!(error.to_string().contains("--stream"), "{error}");
}

#[tokio::test]
async fn a_broken_connection_neither_loses_nor_duplicates_packets() {
    let (_folder, path, server, model) = start_with(1000).await;
    model.lock().unwrap().breaks_after = Some(5);
    let report = push_file(&server, &path).await.unwrap();
    let model = model.lock().unwrap();
    assert_eq!(model.content(), lines(1000).as_bytes());
    assert_eq!(report.packets, model.packet_count() as u64);
    assert!(model.duplicates >= 1);
    assert_eq!(report.duplicates, model.duplicates as u64);
}

#[tokio::test]
async fn a_push_with_another_packet_size_is_refused() {
    let (_folder, path, server, model) = start_with(1000).await;
    push_file(&server, &path).await.unwrap();
    let there = model.lock().unwrap().packet_count();
    let options = PushOptions {
        packet_bytes: 2048,
        ..options()
    };
    let plan = Plan::of(&[path], &PlanOptions::default()).unwrap();
    let error = push(&server.client(), plan, &options, &silent())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("--packet-bytes"), "{error}");
    assert_eq!(model.lock().unwrap().packet_count(), there);
}

/// Waits until the server has `content`.
async fn until(model: &Mutex<Model>, content: &str) {
    let have = async {
        while model.lock().unwrap().streams.is_empty()
            || model.lock().unwrap().content() != content.as_bytes()
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), have).await;
    assert!(waited.is_ok(), "the server did not receive everything");
}

#[tokio::test]
async fn a_growing_file_is_followed_across_restarts() {
    let (_folder, path, server, model) = start_with(150).await;
    let mut written = lines(150);
    for restart in 0..3 {
        let (stop, pushing) = follow(&server, &path, |follow| Follow {
            flush_after: Duration::from_millis(5),
            report_every: Duration::ZERO,
            ..follow
        });
        until(&model, &written).await;
        for step in 0..3 {
            let more = lines(40 + restart * 30 + step);
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            file.write_all(more.as_bytes()).unwrap();
            written.push_str(&more);
            until(&model, &written).await;
        }
        stop.store(true, Ordering::Relaxed);
        pushing.await.unwrap().unwrap();
        check_provenance(&model.lock().unwrap(), written.as_bytes());
    }
    assert_eq!(model.lock().unwrap().duplicates, 0);
}

/// Compares the reported provenance with the file.
fn check_provenance(model: &Model, file: &[u8]) {
    let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
    let mut known: BTreeMap<u64, [usize; 4]> = BTreeMap::new();
    let mut before: Option<(u64, u64)> = None;
    for reported in &model.provenance {
        let bytes = number(&reported["file_bytes"]);
        let checksum = storage_format::checksum::crc32c(&file[..bytes]);
        assert_eq!(reported["checksum"], checksum);
        assert!(reported["modified"].is_null());
        let grown = &reported["grown_from"];
        let grown = (!grown.is_null()).then(|| {
            let number = |field: &str| grown[field].as_u64().unwrap();
            (number("file_bytes"), number("checksum"))
        });
        // Each report refers to the previous one, also across restarts.
        let this = (bytes as u64, u64::from(checksum));
        assert_eq!(grown, before.filter(|before| *before != this), "{reported}");
        before = Some(this);
        for packet in reported["packets"].as_array().unwrap() {
            let packet = packet.as_array().unwrap();
            let point = [1, 2, 3, 4].map(|at| number(&packet[at]));
            let earlier = known.insert(packet[0].as_u64().unwrap(), point);
            assert!(earlier.is_none_or(|earlier| earlier == point), "{packet:?}");
            assert!(point[0] + point[1] <= bytes, "{reported}");
        }
    }
    let stream = model.streams.first_key_value().unwrap().1;
    assert_eq!(known.len(), stream.len());
    let (mut end, mut line) = (0, 0);
    for ((_, sequence), packet) in stream {
        let [offset, length, first_line, lines] = known[sequence];
        assert_eq!((offset, length), (end, packet.len()), "{sequence}");
        assert_eq!(packet, &file[offset..offset + length]);
        let ends = packet.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!((first_line, lines), (line, ends), "{sequence}");
        (end, line) = (end + length, line + ends);
    }
}

#[tokio::test]
async fn missing_provenance_is_reported_later() {
    let (_folder, path, server, model) = start_with(0).await;
    let mut written = String::new();
    for (round, refuses) in [false, true, true, false].into_iter().enumerate() {
        model.lock().unwrap().refuses_provenance = refuses;
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        let mut append = |count| {
            let more = lines(count);
            file.write_all(more.as_bytes()).unwrap();
            written.push_str(&more);
            written.clone()
        };
        append(120 + round);
        let (stop, pushing) = follow(&server, &path, |follow| Follow {
            flush_after: Duration::from_millis(1),
            ..follow
        });
        for count in [3, 170] {
            let now = append(count);
            until(&model, &now).await;
        }
        stop.store(true, Ordering::Relaxed);
        let reports = pushing.await.unwrap().unwrap();
        let remark = reports[0].remark.clone().unwrap_or_default();
        assert_eq!(remark.contains("is not stored"), refuses, "{remark}");
    }
    check_provenance(&model.lock().unwrap(), written.as_bytes());
}

#[tokio::test]
async fn a_rotated_file_is_finished_and_its_successor_followed() {
    let (folder, path, server, model) = start_with(150).await;
    let (stop, pushing) = follow(&server, &path, |follow| Follow {
        flush_after: Duration::from_secs(3600),
        ..follow
    });
    let begun = async {
        while model.lock().unwrap().packet_count() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), begun)
        .await
        .unwrap();
    let successor = folder.path().join("new");
    fs::write(&successor, lines(220)).unwrap();
    fs::rename(&successor, &path).unwrap();
    let full = |packets: &[Bytes]| packets.concat().len() >= lines(220).len() - 1024;
    let second = async {
        loop {
            let packets: Vec<Bytes> = {
                let model = model.lock().unwrap();
                let stream = model.streams.first_key_value().unwrap().1;
                let newest = stream.last_key_value().unwrap().0.0;
                let oldest = stream.first_key_value().unwrap().0.0;
                let newest = (newest > oldest).then_some((newest, 0));
                newest.map_or(Vec::new(), |from| {
                    stream
                        .range(from..)
                        .map(|(_, packet)| packet.clone())
                        .collect()
                })
            };
            if full(&packets) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), second)
        .await
        .unwrap();
    stop.store(true, Ordering::Relaxed);
    pushing.await.unwrap().unwrap();
    let model = model.lock().unwrap();
    assert_eq!(model.content(), lines(220).as_bytes());
    let all: usize = model
        .streams
        .first_key_value()
        .unwrap()
        .1
        .values()
        .map(Bytes::len)
        .sum();
    assert_eq!(
        all,
        lines(150).len() + lines(220).len(),
        "the old file was sent to its end"
    );
}

#[tokio::test]
async fn ctf_folders_become_agents_with_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ust/uid/0");
    fs::create_dir_all(trace.join("index")).unwrap();
    fs::write(trace.join("metadata"), "/* CTF 1.8 */").unwrap();
    fs::write(trace.join("chan_0"), "x").unwrap();
    fs::write(trace.join(".hidden"), "x").unwrap();
    fs::write(folder.path().join("notes.txt"), "n").unwrap();
    let named = PlanOptions {
        agent: Some("app".to_owned()),
        ..PlanOptions::default()
    };
    let paths = [folder.path().to_owned()];
    let plan = Plan::of(&paths, &named).unwrap();
    let found: Vec<_> = plan
        .sources
        .iter()
        .map(|s| format!("{}/{} {}", s.agent, s.stream, s.kind))
        .collect();
    assert_eq!(found, ["app/notes.txt raw", "app-ust.uid.0/chan_0 ctf"]);

    let (server, model) = start().await;
    push(&server.client(), plan, &options(), &silent())
        .await
        .unwrap();
    let mut declared = model.lock().unwrap().declared.clone();
    // The streams are pushed in parallel; each reports its provenance at its end.
    let mut reported = declared.split_off(5);
    reported.sort();
    assert_eq!(
        declared,
        [
            "/api/v1/agents/app",
            "/api/v1/agents/app-ust.uid.0",
            "/api/v1/agents/app-ust.uid.0/metadata",
            "/api/v1/agents/app/streams/notes.txt",
            "/api/v1/agents/app-ust.uid.0/streams/chan_0",
        ]
    );
    let storage = "/api/v1/storages/00000000-0000-0000-0000-000000000007/agents";
    assert_eq!(
        reported,
        [
            format!("{storage}/app-ust.uid.0/streams/chan_0/provenance"),
            format!("{storage}/app/streams/notes.txt/provenance"),
        ]
    );

    let plan = Plan::of(&[trace], &named).unwrap();
    assert_eq!(
        plan.agents[0].id.as_str(),
        "app",
        "a single trace is the named agent"
    );
}

/// Queries omit spans in a stream named like a derived one.
#[test]
fn files_of_spans_do_not_become_streams_of_derived_ones() {
    let folder = tempfile::tempdir().unwrap();
    let spans = concat!(
        r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0000000000000000000000000000"#,
        r#"0001","spanId":"0000000000000001","name":"a","startTimeUnixNano":"1","#,
        r#""endTimeUnixNano":"2"}]}]}]}"#,
    );
    let names = |content: &str| {
        for name in ["traces", "traces.spans", "x.clones"] {
            fs::write(folder.path().join(name), format!("{content}\n")).unwrap();
        }
        let plan = Plan::of(&[folder.path().to_path_buf()], &PlanOptions::default()).unwrap();
        let streams = plan.sources.iter().map(|source| source.stream.to_string());
        streams.collect::<Vec<_>>()
    };
    let renamed = ["traces", "traces.spans.otlp", "x.clones.otlp"];
    assert_eq!(names(spans), renamed);
    // Other kinds have no derived streams.
    assert_eq!(names("text"), ["traces", "traces.spans", "x.clones"]);
}

fn check_refused(paths: &[&Path], options: &PlanOptions, reason: &str) {
    let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
    let error = Plan::of(&paths, options).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
}

#[test]
fn invalid_plans_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("a/x"), folder.path().join("b/x"));
    for path in [&one, &two] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let empty = tempfile::tempdir().unwrap();
    let plain = PlanOptions::default();
    let stream = PlanOptions {
        stream: Some("s".to_owned()),
        ..plain.clone()
    };
    let agent = PlanOptions {
        agent: Some("no/name".to_owned()),
        ..plain.clone()
    };
    let kind = |kind| PlanOptions {
        kind: Some(kind),
        ..PlanOptions::default()
    };
    check_refused(&[&one, &two], &plain, "would both be stream x");
    check_refused(
        &[folder.path()],
        &stream,
        "--stream requires a single file, found 2",
    );
    check_refused(&[&one], &agent, "no/name");
    check_refused(
        &[&one],
        &kind(Kind::RocksdbIo),
        "expected a trace of kind rocksdb-io",
    );
    check_refused(&[&one], &kind(Kind::IoTrace), "cannot be pushed as kind");
    check_refused(&[&one], &kind(Kind::Otlp), "expected a trace of kind otlp");
    check_refused(&[empty.path()], &plain, "no file to push");
    check_refused(&[&folder.path().join("none")], &plain, "No such file");
    let named: Vec<_> = Plan::of(&[folder.path().to_owned()], &plain)
        .unwrap()
        .sources
        .iter()
        .map(|source| source.stream.to_string())
        .collect();
    assert_eq!(named, ["a.x", "b.x"], "names are relative to the folder");
}
