//! Every result that lacks something because it cannot be read says so: in its trailers, in NDJSON,
//! on stderr, in the exit code, in the metrics and in the status of the storage.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Agent, Request, Response, Server};
use serde_json::{Value, json};

use crate::queries::{mount, push, run, settings, wait_for_indexes};

/// Lines of the trace that are no records.
const BROKEN_LINES: u64 = 4;

/// A DFTracer trace with lines that are no records: cut, with a comma before the
/// closing brace or after it, and no JSON.
fn trace() -> String {
    let mut text = String::from("[\n");
    for id in 0..300_u64 {
        let name = if id % 2 == 0 { "read" } else { "write" };
        let ts = 1_700_000_000_000_000 + id;
        let line = format!(
            r#"{{"id":{id},"name":"{name}","cat":"POSIX","pid":1,"tid":2,"ts":{ts},"dur":5,"ph":"X"}}"#
        );
        match id {
            100 => writeln!(text, "{}", &line[..40]).unwrap(),
            200 => writeln!(text, "{},}}", &line[..line.len() - 1]).unwrap(),
            220 => writeln!(text, "{line},").unwrap(),
            250 => writeln!(text, "torn {line}").unwrap(),
            _ => writeln!(text, "{line}").unwrap(),
        }
    }
    text
}

/// A storage with the trace.
pub(crate) fn pushed(server: &Server, folder: &Path) -> String {
    let path = folder.join("trace.pfw");
    fs::write(&path, trace()).unwrap();
    let storage = server.api().create_storage("trace");
    push(server, &storage, &path, "4096");
    storage
}

fn query(server: &Server, storage: &str, body: &Value, te: bool) -> Response {
    let path = format!("/api/v1/storages/{storage}/query");
    let body = body.to_string();
    let mut request = Request::new("POST", &path)
        .header("content-type", "application/json")
        .body(body.as_bytes());
    if te {
        request = request.header("te", "trailers");
    }
    server.api().send(&request).unwrap()
}

/// All forms of a result.
fn forms() -> Vec<Value> {
    let mut forms = vec![json!({ "count": true })];
    for format in [
        "ndjson", "csv", "text", "arrow", "parquet", "perfetto", "chrome",
    ] {
        forms.push(json!({ "format": format }));
        if !["perfetto", "chrome"].contains(&format) {
            forms.push(json!({ "format": format, "group_by": "name" }));
            forms.push(json!({ "format": format, "group_by": "tid" }));
        }
    }
    forms
}

/// Checks all forms over HTTP. `parts` is the number of parts that are skipped.
fn check_http(server: &Server, storage: &str, expression: &str, parts: u64) {
    for mut body in forms() {
        body["query"] = json!(expression);
        let answer = query(server, storage, &body, true);
        let what = format!("{body} {}", answer.brief());
        assert_eq!(answer.status, 200, "{what}");
        let parts_text = parts.to_string();
        assert_eq!(
            answer.trailer("tracehold-skipped"),
            Some(&*parts_text),
            "{what}"
        );
        // The result is short, so everything is known before it is sent.
        assert_eq!(
            answer.header("tracehold-skipped"),
            Some(&*parts_text),
            "{what}"
        );
        let reasons = answer.trailer("tracehold-skipped-reasons");
        assert_eq!(reasons.is_some(), parts > 0, "{what}");
        if let Some(reasons) = reasons {
            let reasons: Vec<String> = serde_json::from_str(reasons).unwrap();
            assert!(reasons[0].contains("cannot be read"), "{reasons:?}");
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let last = text.lines().last().unwrap_or_default();
        // A table is made by whoever shows it, from lines of JSON.
        let is_table = body["format"] == "text" && body["group_by"].is_string();
        let is_rows = body["format"] == "ndjson" || is_table;
        if body["count"] == true {
            assert_eq!(last.contains("\"skipped_records\""), parts > 0, "{what}");
        } else if is_rows {
            let summary: Value = serde_json::from_str(last).unwrap_or_default();
            let records = summary["summary"]["skipped_records"].as_u64();
            assert_eq!(records, (parts > 0).then_some(parts), "{what}");
        }
        if body["format"] == "parquet" {
            // Of rows and of groups.
            assert_eq!(text.contains("tracehold.skipped"), parts > 0, "{what}");
        }
        body["strict"] = json!(true);
        let answer = query(server, storage, &body, true);
        if parts == 0 {
            assert_eq!(answer.status, 200, "{body} {}", answer.brief());
        } else {
            assert_eq!(answer.status, 409, "{body} {}", answer.brief());
            assert_eq!(answer.json()["code"], "result_incomplete", "{body}");
        }
    }
    let explained = json!({ "query": expression, "explain": true });
    let explained = query(server, storage, &explained, false);
    let text = String::from_utf8_lossy(&explained.body).into_owned();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["notes"], last["skipped"], "{last}");
    let said = last["notes"].as_array().unwrap().len() as u64;
    assert_eq!(said > 0, parts > 0, "{last}");
    let plain = query(server, storage, &json!({ "query": expression }), false);
    assert!(plain.trailers.is_empty(), "{:?}", plain.trailers);
}

/// Checks all forms of the command line.
fn check_client(source: &[&str], expression: &str, is_complete: bool) {
    let forms: &[&[&str]] = &[
        &["--count"],
        &["--count", "--json"],
        &["--group-by", "name"],
        &["--group-by", "tid", "--format", "csv"],
        &["--group-by", "name", "--json"],
        &["--format", "text"],
        &["--format", "csv"],
        &["--format", "ndjson"],
        &["--format", "ndjson", "--explain"],
        &["--format", "arrow", "--fields", "tid"],
    ];
    for form in forms {
        let arguments = [&["query"], source, &[expression], form].concat();
        let (code, out, errors) = run(&arguments);
        let what = format!("{arguments:?}: {out}{errors}");
        assert_eq!(code, i32::from(!is_complete), "{what}");
        assert_eq!(errors.contains("cannot be read"), !is_complete, "{what}");
        assert!(errors.matches("cannot be read").count() <= 1, "{what}");
        let whose = if source[0].starts_with("--server") {
            "; the server skipped this data"
        } else {
            "; the result lacks what could not be read"
        };
        assert_eq!(errors.contains(whose), !is_complete, "{what}");
        assert!(!out.contains("summary"), "{what}");
        if form == &["--count", "--json"] {
            let document: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(document["skipped"].is_array(), !is_complete, "{what}");
        }
        let (code, _, errors) = run(&[&arguments[..], &["--strict"]].concat());
        let refused = if source[0].starts_with("--server") {
            3
        } else {
            1
        };
        assert_eq!(
            code,
            if is_complete { 0 } else { refused },
            "{what} {errors}"
        );
        assert_eq!(
            errors.contains("would be incomplete"),
            !is_complete,
            "{errors}"
        );
    }
}

#[test]
fn every_form_of_a_result_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = pushed(&server, folder.path());
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    check_http(&server, &storage, "", BROKEN_LINES);
    // What cannot be read may have any time.
    check_http(&server, &storage, "ts < 2020-01-01T00:00:00Z", BROKEN_LINES);
    check_client(&stored, "", false);
    // No index was made, so the queries say it.
    let status = server.api().status(&storage);
    assert_eq!(status["unreadable_records"], BROKEN_LINES, "{status}");
    let log = server.log();
    assert!(
        log.contains("a query skipped data that it cannot read"),
        "{log}"
    );
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    // With indexes, nothing is read to know it.
    check_http(&server, &storage, "dur < 1ms", BROKEN_LINES);
    check_http(&server, &storage, "ts < 2020-01-01T00:00:00Z", BROKEN_LINES);
    check_http(&server, &storage, "kind == 'ctf'", 0);
    check_client(&stored, "name == 'read'", false);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = mounted.to_str().unwrap();
    check_client(&["--dir", mounted], "name == 'read'", false);
    check_client(&["--dir", mounted, "--no-index"], "name == 'read'", false);
    let file = folder.path().join("trace.pfw");
    let file = file.to_str().unwrap();
    check_client(&[file], "", false);
    let (code, _, errors) = run(&["index", file]);
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("4 records cannot be read"), "{errors}");
    let (code, _, errors) = run(&["index", file]);
    assert_eq!((code, errors.contains("4 records")), (1, true), "{errors}");
    check_client(&[file], "name == 'read'", false);
    check_client(&[file], "dur == 5us", false);
    assert!(server.api().metric("tracehold_queries_incomplete_total") > 0.0);
    assert!(server.api().metric("tracehold_query_skipped_records_total") > 0.0);
    let status = server.api().status(&storage);
    assert_eq!(status["unreadable_records"], BROKEN_LINES, "{status}");
    let reason = status["unreadable"][0].as_str().unwrap();
    assert!(reason.contains("cannot be read"), "{status}");
}

/// Times after a declaration of another unit are read with the first one, and perhaps not meant so.
#[test]
fn a_later_unit_of_times_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let unit = |unit: &str| {
        format!(
            "{{\"name\":\"CM\",\"ph\":\"M\",\"args\":{{\"name\":\"time_metric\",\
             \"value\":\"{unit}\"}}}}\n"
        )
    };
    for (later, is_complete) in [("NS", true), ("US", false)] {
        let lines = trace();
        let mut lines = lines
            .lines()
            .filter(|line| line.starts_with("{\"id\"") && line.ends_with("\"X\"}"));
        let mut text = unit("NS");
        text.extend(lines.by_ref().take(50).flat_map(|line| [line, "\n"]));
        text += &unit(later);
        text.extend(lines.take(50).flat_map(|line| [line, "\n"]));
        let path = folder.path().join(format!("{later}.pfw"));
        fs::write(&path, text).unwrap();
        let storage = server.api().create_storage(later);
        push(&server, &storage, &path, "1024");
        let (url, file) = (server.url(), path.to_str().unwrap());
        let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
        check_client(&[file], "dur == 5ns", is_complete);
        check_client(&stored, "dur == 5ns", is_complete);
        server.api().finalize(&storage);
        wait_for_indexes(&server, &storage);
        check_client(&stored, "dur == 5ns", is_complete);
        let (code, _, errors) = run(&["index", file]);
        assert_eq!(code, i32::from(!is_complete), "{errors}");
        check_client(&[file], "dur == 5ns", is_complete);
    }
}

/// What a folder has and nobody can read is told by each query of the folder.
#[test]
fn files_of_a_folder_that_cannot_be_read_are_told() {
    let whole = trace();
    let lines = whole.lines().filter(|line| line.starts_with("{\"id\""));
    let whole: String = lines.take(50).flat_map(|line| [line, "\n"]).collect();
    let compressed = zstd::encode_all(whole.as_bytes(), 1).unwrap();
    let mut damaged = compressed.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    damaged[last / 2] ^= 0xff;
    let cut = &compressed[..40];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"{\"traceEvents\":[]}").unwrap();
    let gzip = gzip.finish().unwrap();
    for (name, bytes) in [
        ("cut.json.zst", Some(cut)),
        ("cut.pfw.zst", Some(cut)),
        ("damaged.pfw.zst", Some(&damaged[..])),
        ("cut.json.gz", Some(&gzip[..12])),
        ("link.pfw", None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("whole.pfw"), &whole).unwrap();
        let path = folder.path().join(name);
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => std::os::unix::fs::symlink("/nowhere/rank1.pfw", &path).unwrap(),
        }
        let source = folder.path().to_str().unwrap();
        for command in ["query", "index", "query"] {
            let words = [command, source, "--count"];
            let words = &words[..if command == "query" { 3 } else { 2 }];
            let (code, out, errors) = run(words);
            let what = format!("{command} with {name}: {out}{errors}");
            assert_eq!(code, 1, "{what}");
            assert!(errors.contains(name), "{what}");
            assert!(command == "index" || out == "50\n", "{what}");
        }
        let (code, _, errors) = run(&["query", source, "--count", "--strict"]);
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains("would be incomplete"), "{errors}");
    }
}

#[test]
fn the_index_build_reports_what_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = pushed(&server, folder.path());
    let status = server.api().status(&storage);
    assert_eq!(status["unreadable"], json!([]), "{status}");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let status = server.api().status(&storage);
    assert_eq!(status["unreadable_records"], BROKEN_LINES, "{status}");
}

/// Waits for the index of the one leaf that can be decoded.
fn wait_for_index(server: &Server, storage: &str) {
    let is_index = |file: &(String, String, u64)| file.1 == "chunk_index";
    for _ in 0..3_000 {
        if server.api().files(storage).iter().any(is_index) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no chunk index within a minute:\n{}", server.log());
}

/// A packet that is no OTLP request, and a CTF stream without trace metadata.
#[test]
fn undecodable_packets_and_streams_are_reported_with_their_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = api.create_storage("trace");
    api.done(
        "PUT",
        "/agents/a",
        Some(&json!({ "name": "a", "host": "h" })),
    );
    for (stream, kind) in [("spans", "otlp"), ("trace", "ctf")] {
        let path = format!("/agents/a/streams/{stream}");
        api.done("PUT", &path, Some(&json!({ "kind": kind })));
        let agent = Agent::new(&storage, "a", stream);
        let answer = agent.post(&mut api, 0, b"\xff\xff not a packet").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.brief());
    }
    let url = server.url();
    let check = |expression: &str, expected: &[&str]| {
        let body = json!({ "query": expression, "count": true });
        let skipped = query(&server, &storage, &body, true).json()["skipped"].clone();
        let reasons = skipped.as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(reasons.len(), expected.len(), "{expression}: {skipped}");
        for (reason, expected) in reasons.iter().zip(expected) {
            assert!(reason.as_str().unwrap().contains(expected), "{reason}");
        }
        let of_storage = ["--server", &url, "--storage", &storage, expression];
        let (code, _, errors) = run(&[&["query"], &of_storage[..]].concat());
        assert_eq!(code, 1, "{errors}");
        assert!(
            expected.iter().all(|expected| errors.contains(expected)),
            "{errors}"
        );
    };
    // Once there is an index, it counts the packets that cannot be read.
    for packets in ["packet at", "1 record cannot be read"] {
        check("", &["its agent sent no trace metadata", packets]);
        check("stream == 'trace'", &["its agent sent no trace metadata"]);
        check("kind == 'otlp'", &[packets]);
        check("kind == 'dft'", &[]);
        if server.api().state(&storage) == "OPEN" {
            server.api().finalize(&storage);
            wait_for_index(&server, &storage);
        }
    }
}

/// Gzip members are stored as they are, and counted all the same.
#[test]
fn receipts_a_storage_and_a_count_agree_on_the_number_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    for path in harness::small_traces() {
        let file = path.to_str().unwrap();
        let storage = server.api().create_storage(file);
        let report = push(&server, &storage, &path, "16384");
        let streams = report["streams"].as_array().unwrap().iter();
        let acknowledged = streams.map(|stream| stream["events"].as_u64().unwrap());
        let body = json!({ "count": true });
        let count = query(&server, &storage, &body, false).json()["count"].clone();
        assert_eq!(json!(acknowledged.sum::<u64>()), count, "{file}: receipts");
        let document = server.api().storage(&storage);
        assert_eq!(document["events"], count, "{file}");
        assert!(count.as_u64() > Some(100), "{file}: {count}");
        assert!(
            document["begin"].as_i64() < document["end"].as_i64(),
            "{document}"
        );
    }
}

#[test]
fn a_damaged_packet_is_skipped_and_told_in_every_order() {
    let (folder, server, mut api) = Server::fresh();
    let path = folder.path().join("whole.pfw");
    let line = |id: u64| {
        let ts = 1_700_000_000_000_000 + id;
        format!(r#"{{"id":{id},"name":"r","cat":"c","pid":1,"tid":2,"ts":{ts},"dur":5,"ph":"X"}}"#)
    };
    let lines: Vec<String> = (0..200).map(line).collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let storage = api.create_storage("damaged");
    push(&server, &storage, &path, "4096");
    let packets = api.done("GET", &format!("/storages/{storage}/descriptors"), None);
    let packet = &packets["items"][1];
    let (events, offset) = (
        packet["events"].as_u64().unwrap(),
        packet["offset"].as_u64(),
    );
    let file = server.data().join("storages").join(&storage);
    let file = file.join(packet["file"].as_str().unwrap());
    let mut bytes = fs::read(&file).unwrap();
    bytes[usize::try_from(offset.unwrap()).unwrap() + 9] ^= 0x40;
    fs::write(&file, bytes).unwrap();
    for order in [json!(null), json!("ts"), json!("ts desc"), json!("id desc")] {
        let body = match &order {
            Value::Null => json!({ "format": "csv" }),
            order => json!({ "format": "csv", "order_by": order }),
        };
        let answer = query(&server, &storage, &body, true);
        let what = format!("{order} {}", answer.brief());
        assert_eq!(answer.status, 200, "{what}");
        assert_eq!(answer.trailer("tracehold-skipped"), Some("1"), "{what}");
        let rows = String::from_utf8_lossy(&answer.body).lines().count() as u64;
        assert_eq!(rows, 1 + 200 - events, "{what}");
        let body = json!({ "order_by": order, "strict": true });
        let strict = query(&server, &storage, &body, true);
        assert_eq!(strict.json()["code"], "result_incomplete", "{what}");
    }
}

/// Where a packet is in its data file, and its events.
struct Place {
    file: PathBuf,
    offset: u64,
    events: u64,
}

/// The packets of a storage whose files are in `folder`, in their order.
fn places(server: &Server, storage: &str, folder: &Path) -> Vec<Place> {
    let packets = server
        .api()
        .done("GET", &format!("/storages/{storage}/descriptors"), None);
    let place = |packet: &Value| Place {
        file: folder.join(packet["file"].as_str().unwrap()),
        offset: packet["offset"].as_u64().unwrap(),
        events: packet["events"].as_u64().unwrap(),
    };
    packets["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(place)
        .collect()
}

/// Damages the second packet. Returns the events that are left.
fn damage(places: &[Place]) -> u64 {
    let damaged = &places[1];
    let mut bytes = fs::read(&damaged.file).unwrap();
    bytes[usize::try_from(damaged.offset).unwrap() + 9] ^= 0x40;
    fs::write(&damaged.file, bytes).unwrap();
    let all = places.iter().map(|place| place.events).sum::<u64>();
    all - damaged.events
}

/// Cuts the data file in the last but one packet. Returns the events that are cut off.
fn cut(places: &[Place]) -> u64 {
    let (first, at) = (&places[0], places.len() - 2);
    assert!(at > 2 && places.iter().all(|place| place.file == first.file));
    let mut bytes = fs::read(&first.file).unwrap();
    bytes.truncate(usize::try_from(places[at].offset).unwrap() + 20);
    fs::write(&first.file, bytes).unwrap();
    places[at..].iter().map(|place| place.events).sum()
}

/// Open, finalized, mounted and downloaded: what is damaged, and what a data file lacks, costs only
/// the packets that it hits.
#[test]
fn damage_and_cuts_cost_only_the_packets_that_they_hit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let path = folder.path().join("whole.pfw");
    let line = |id: u64| {
        let ts = 1_700_000_000_000_000 + id;
        format!(r#"{{"id":{id},"name":"r","cat":"c","pid":1,"tid":2,"ts":{ts},"dur":5,"ph":"X"}}"#)
    };
    let lines: Vec<String> = (0..400).map(line).collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let check_local = |dir: &Path, rows: u64, told: &str| {
        let dir = dir.to_str().unwrap();
        for order in [&[][..], &["--order-by", "id desc"]] {
            let words = [&["query", "--dir", dir, "--format", "csv"][..], order].concat();
            let (code, out, errors) = run(&words);
            let found = out.lines().count() as u64;
            assert_eq!((code, found), (1, rows + 1), "{words:?} {errors}");
            assert!(errors.contains(told), "{errors}");
            let (code, _, errors) = run(&[&words[..], &["--strict"]].concat());
            assert_eq!(code, 1, "{errors}");
        }
    };
    for is_final in [false, true] {
        let storage = server
            .api()
            .create_storage(if is_final { "final" } else { "open" });
        push(&server, &storage, &path, "4096");
        let (mounted, copy) = (folder.path().join("mount"), folder.path().join("copy"));
        if is_final {
            server.api().finalize(&storage);
            wait_for_indexes(&server, &storage);
            mount(&server, &storage, &mounted);
            let url = format!("{}/storage/{storage}", server.url());
            let (code, _, errors) = run(&["download", &url, copy.to_str().unwrap()]);
            assert_eq!(code, 0, "{errors}");
        }
        let data = server.data().join("storages").join(&storage);
        let of_server = places(&server, &storage, &data);
        let mut left = damage(&of_server);
        if is_final {
            // The server sends no block that is damaged, so its packets are read one by one.
            check_local(&mounted, left, "damaged");
            let of_copy = places(&server, &storage, &copy);
            assert_eq!(damage(&of_copy), left);
            check_local(&copy, left, "packet at");
            // A local file that was cut is read from the server.
            cut(&of_copy);
            check_local(&copy, left, "damaged");
        }
        left -= cut(&of_server);
        if is_final {
            check_local(&mounted, left, "damaged");
        }
        for order in [Value::Null, json!("id desc")] {
            let mut body = json!({ "format": "csv" });
            if !order.is_null() {
                body["order_by"] = order;
            }
            let answer = query(&server, &storage, &body, true);
            let what = format!("{is_final} {body} {}", answer.brief());
            assert_eq!(answer.status, 200, "{what}");
            let skipped = answer.trailer("tracehold-skipped").unwrap_or("0");
            assert_ne!(skipped, "0", "{what}");
            let rows = String::from_utf8_lossy(&answer.body).lines().count() as u64;
            assert_eq!(rows, 1 + left, "{what}");
            body["strict"] = json!(true);
            let strict = query(&server, &storage, &body, true);
            assert_eq!(strict.json()["code"], "result_incomplete", "{what}");
        }
    }
}

/// A file whose producer was killed, and one that is about to be filled.
#[test]
fn an_index_of_a_torn_file_says_so_and_a_list_without_fields_has_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let torn = folder.path().join("torn.pfw.gz");
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/trace-0-of-1.pfw.gz");
    let bytes = fs::read(whole).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let (code, _, errors) = run(&["index", torn.to_str().unwrap()]);
    assert_eq!(code, 1, "{errors}");
    for told in ["ends inside the gzip member", "the rest is indexed"] {
        assert!(errors.contains(told), "{errors}");
    }
    // A damaged member between whole ones costs no line of others.
    let member = |text: &str| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let lines = trace()
        .lines()
        .skip(1)
        .take(50)
        .collect::<Vec<_>>()
        .join("\n")
        + "\n";
    let mut damaged = member(&lines);
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    let bytes = [member(&lines), damaged, member(&lines)].concat();
    fs::write(&torn, bytes).unwrap();
    for command in ["index", "decode"] {
        let (code, out, errors) = run(&[command, torn.to_str().unwrap()]);
        assert_eq!(code, 1, "{command}: {errors}");
        assert!(errors.contains("the gzip member is damaged"), "{errors}");
        assert!(command == "index" || out.lines().count() == 100, "{out}");
    }
    let empty = folder.path().join("empty.pfw");
    fs::write(&empty, "").unwrap();
    let (code, out, errors) = run(&["fields", empty.to_str().unwrap()]);
    assert_eq!(code, 1, "{out}{errors}");
}

/// A storage of bytes alone has no events, and a query says so.
#[test]
fn streams_without_events_are_told() {
    let (folder, server, mut api) = Server::fresh();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "no trace\n").unwrap();
    let storage = api.create_storage("bytes");
    let url = server.url();
    let from = ["--server", &url, "--storage", &storage];
    let (code, _, errors) = run(&[&["push"], &from[..], &[text.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{errors}");
    for is_finalized in [false, true] {
        if is_finalized {
            api.finalize(&storage);
        }
        for form in [
            &["--count"][..],
            &["--format", "csv"],
            &["--group-by", "name"],
        ] {
            let (code, _, errors) = run(&[&["query"], &from[..], form].concat());
            assert_eq!(code, 1, "{form:?}: {errors}");
            let told = "the only stream is of kind raw";
            assert!(errors.contains(told), "{form:?}: {errors}");
        }
    }
}
