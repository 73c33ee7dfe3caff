//! The splits of a query are the query: every event is in exactly one of them, whatever the kind,
//! the state of the storage and the number of splits, and what cannot be read is told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use harness::{Api, Random, Response, Server, small_traces};
use serde_json::{Value, json};

use crate::queries::{push, settings, wait_for_indexes};
use crate::random_sources::{queries, request_with_spans, slices};

/// Random expressions for each trace.
const QUESTIONS: usize = 3;

/// A way to ask: the path of the query, and its body.
struct Asked {
    path: String,
    body: Value,
}

impl Asked {
    fn of(storage: &str, body: Value) -> Self {
        let path = format!("/storages/{storage}/query");
        Self { path, body }
    }

    fn answer(&self, api: &mut Api, more: &Value) -> Response {
        let mut body = self.body.clone();
        let members = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(members);
        let answer = api.call("POST", &self.path, Some(&body));
        assert_eq!(answer.status, 200, "{body}: {}", answer.brief());
        answer
    }

    fn list(&self, api: &mut Api, count: u64) -> Value {
        let mut body = self.body.clone();
        body["count"] = json!(count);
        api.done("POST", &format!("{}/splits", self.path), Some(&body))
    }

    fn splits(&self, api: &mut Api, count: u64) -> Vec<String> {
        let list = self.list(api, count);
        let splits = list["splits"].as_array().unwrap().iter();
        let splits = splits.map(|split| split["split"].as_str().unwrap().to_owned());
        splits.collect()
    }

    /// The lines of the answer in NDJSON, without the summary.
    fn lines(&self, api: &mut Api, more: &Value) -> Vec<String> {
        let answer = self.answer(api, more);
        let text = String::from_utf8(answer.body).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("{\"summary\""));
        lines.map(str::to_owned).collect()
    }

    fn count(&self, api: &mut Api, more: &Value) -> u64 {
        let mut more = more.clone();
        more["count"] = json!(true);
        let answer = self.answer(api, &more);
        answer.json()["count"].as_u64().unwrap()
    }

    /// Numbers of events by name.
    fn names(&self, api: &mut Api, more: &Value) -> BTreeMap<String, u64> {
        let mut more = more.clone();
        more["group_by"] = json!("name");
        more["aggregate"] = json!("count");
        let lines = self.lines(api, &more).into_iter();
        let groups = lines.map(|line| {
            let group: Value = serde_json::from_str(&line).unwrap();
            (group["name"].to_string(), group["count"].as_u64().unwrap())
        });
        groups.collect()
    }
}

/// What the whole query answers.
struct Whole {
    lines: Vec<String>,
    names: BTreeMap<String, u64>,
}

impl Whole {
    fn of(asked: &Asked, api: &mut Api) -> Self {
        let mut lines = asked.lines(api, &json!({}));
        assert_eq!(asked.count(api, &json!({})), lines.len() as u64);
        lines.sort();
        Self {
            names: asked.names(api, &json!({})),
            lines,
        }
    }

    /// Compares with the answers to splits.
    fn check(&self, asked: &Asked, api: &mut Api, splits: &[String], what: &str) {
        let what = format!("{what} {} in {} splits", asked.body, splits.len());
        let (mut all, mut counted) = (Vec::new(), 0);
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for split in splits {
            let part = json!({ "split": split });
            let lines = asked.lines(api, &part);
            let begin = |line: &String| {
                let row: Value = serde_json::from_str(line).unwrap();
                row["ts"].as_f64().unwrap_or(f64::MIN)
            };
            assert!(lines.iter().map(begin).is_sorted(), "{what}");
            counted += asked.count(api, &part);
            for (name, events) in asked.names(api, &part) {
                *names.entry(name).or_default() += events;
            }
            all.extend(lines);
        }
        all.sort();
        assert_eq!(all.len(), self.lines.len(), "{what}");
        assert_eq!(all, self.lines, "{what}");
        assert_eq!(counted, self.lines.len() as u64, "{what}");
        assert_eq!(names, self.names, "{what}");
    }
}

/// Random questions: an expression, and half of the time a window of some of the events.
fn questions(server: &Server, storage: &str, seed: u64) -> Vec<Value> {
    let (url, mut random) = (server.url(), Random::new(seed));
    let source = ["--server", url.as_str(), "--storage", storage];
    let all = Asked::of(storage, json!({ "fields": ["ts"] }));
    let lines = all.lines(&mut server.api(), &json!({}));
    let times = lines.iter().filter_map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["ts"].as_i64()
    });
    let times: Vec<i64> = times.collect();
    let mut questions = vec![json!({})];
    for query in queries(&source, seed).into_iter().take(QUESTIONS) {
        let mut body = json!({ "query": query.expression() });
        if !times.is_empty() && random.below(2) == 0 {
            let at = |random: &mut Random| {
                times[usize::try_from(random.below(times.len() as u64)).unwrap()]
            };
            let (a, b) = (at(&mut random), at(&mut random));
            body["from"] = json!(a.min(b).to_string());
            body["to"] = json!(a.max(b).to_string());
        }
        questions.push(body);
    }
    questions
}

fn check_same(mut found: Vec<String>, mut expected: Vec<String>, what: &str) {
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found == expected, "{what}");
}

fn check_all(server: &Server, storage: &str, questions: &[Value], what: &str, seed: u64) {
    let (mut api, mut random) = (server.api(), Random::new(seed));
    if let Some(first) = questions.first() {
        let asked = Asked::of(storage, first.clone());
        let splits = asked.splits(&mut api, 40);
        let parts = splits.iter().map(|split| json!({ "split": split }));
        let all: Vec<String> = parts
            .flat_map(|part| asked.lines(&mut api, &part))
            .collect();
        check_same(all, asked.lines(&mut api, &json!({})), what);
    }
    for body in questions {
        let asked = Asked::of(storage, body.clone());
        let whole = Whole::of(&asked, &mut api);
        for count in [1, 2 + random.below(5)] {
            let splits = asked.splits(&mut api, count);
            assert!((1..=count).contains(&(splits.len() as u64)), "{what}");
            whole.check(&asked, &mut api, &splits, what);
        }
    }
}

/// Checks a storage while it is open, without and with indexes, and after it was finalized: then
/// also with the splits of before.
fn check_storage(server: &Server, storage: &str, seed: u64, what: &str) {
    let asked = questions(server, storage, seed);
    check_all(server, storage, &asked, &format!("open {what}"), seed);
    let mut api = server.api();
    let before: Vec<(Asked, Vec<String>, Whole)> = asked
        .iter()
        .map(|body| {
            let asked = Asked::of(storage, body.clone());
            let whole = Whole::of(&asked, &mut api);
            (
                Asked::of(storage, body.clone()),
                asked.splits(&mut api, 5),
                whole,
            )
        })
        .collect();
    api.finalize(storage);
    wait_for_indexes(server, storage);
    check_all(server, storage, &asked, &format!("finalized {what}"), seed);
    for (asked, splits, whole) in &before {
        whole.check(
            asked,
            &mut api,
            splits,
            &format!("{what}, split when it was open"),
        );
    }
}

fn check_trace(path: &Path, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, path, "4096");
    check_storage(&server, &storage, seed, &path.display().to_string());
    // Storages of several traces, split as one, in which the splits have leaves of both.
    let other = server.api().create_storage("other");
    push(&server, &other, &small_traces()[1], "8192");
    let asked = Asked {
        path: "/query".to_owned(),
        body: json!({ "storages": [storage, "other"], "query": "tid is not null or name ~ 'e'" }),
    };
    let mut api = server.api();
    let whole = Whole::of(&asked, &mut api);
    let splits = asked.splits(&mut api, 3);
    assert!(splits.len() > 1);
    whole.check(&asked, &mut api, &splits, "two storages");
}

#[test]
fn splits_of_ctf_are_the_query() {
    check_trace(&small_traces()[0], 1);
}

#[test]
fn splits_of_dftracer_are_the_query() {
    check_trace(&small_traces()[1], 2);
}

#[test]
fn splits_of_rocksdb_are_the_query() {
    check_trace(&small_traces()[2], 3);
    check_trace(&small_traces()[3], 4);
}

#[test]
fn splits_of_chrome_are_the_query() {
    check_trace(&small_traces()[4], 5);
}

#[test]
fn splits_of_slices_over_many_packets_are_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slices.json");
    fs::write(&path, slices(&mut Random::new(7))).unwrap();
    check_trace(&path, 7);
}

#[test]
fn splits_of_spans_are_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spans.jsonl");
    let mut random = Random::new(8);
    let requests = (0..40).map(|request| format!("{}\n", request_with_spans(&mut random, request)));
    fs::write(&path, requests.collect::<String>()).unwrap();
    check_trace(&path, 8);
}

/// Lines of DFTracer, of which every seventh has no time.
fn lines(ids: std::ops::Range<u64>) -> String {
    let line = |id: u64| {
        let ts = 1_700_000_000_000_000 + id;
        let time = if id % 7 == 3 {
            String::new()
        } else {
            format!("\"ts\":{ts},")
        };
        let name = if id.is_multiple_of(2) {
            "read"
        } else {
            "write"
        };
        format!(
            "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"c\",\"pid\":1,\"tid\":2,{time}\"dur\":5,\
             \"ph\":\"X\"}}\n"
        )
    };
    ids.map(line).collect()
}

fn push_lines(server: &Server, storage: &str, folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    push(server, storage, &path, "4096");
}

#[test]
fn what_arrives_later_is_in_no_split_and_events_without_a_time_are() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("growing");
    push_lines(
        &server,
        &storage,
        folder.path(),
        "first.pfw",
        &lines(0..500),
    );
    let asked = Asked::of(&storage, json!({ "query": "pid == 1" }));
    let whole = Whole::of(&asked, &mut api);
    assert_eq!(whole.lines.len(), 500);
    let splits = asked.splits(&mut api, 4);
    assert_eq!(splits.len(), 4);
    push_lines(
        &server,
        &storage,
        folder.path(),
        "second.pfw",
        &lines(500..900),
    );
    assert_eq!(asked.count(&mut api, &json!({})), 900);
    whole.check(&asked, &mut api, &splits, "a storage that has grown");
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    whole.check(
        &asked,
        &mut api,
        &splits,
        "a storage that has grown and is finalized",
    );
    let all = Whole::of(&asked, &mut api);
    let each = asked.splits(&mut api, 10_000);
    all.check(&asked, &mut api, &each, "a split for each chunk");
}

#[test]
fn pruned_chunks_are_in_no_split() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let storage = api.create_storage("pruned");
    push_lines(&server, &storage, folder.path(), "all.pfw", &lines(0..3000));
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let all = Asked::of(&storage, json!({})).list(&mut api, 8);
    assert_eq!(all["chunks_pruned"], 0, "{all}");
    assert_eq!(all["events"], 3000, "{all}");
    let splits = all["splits"].as_array().unwrap();
    let bytes = splits.iter().map(|split| split["bytes"].as_u64().unwrap());
    assert_eq!(bytes.clone().sum::<u64>(), all["bytes"].as_u64().unwrap());
    assert!(
        bytes.clone().max().unwrap() <= 2 * bytes.min().unwrap(),
        "{all}"
    );
    let few = json!({ "query": "tid == 2", "to": "1700000000000100000" });
    let few = Asked::of(&storage, few).list(&mut api, 8);
    let sum = |list: &Value| {
        let numbers = ["chunks_kept", "chunks_pruned"].map(|name| list[name].as_u64().unwrap());
        numbers.iter().sum::<u64>()
    };
    assert_eq!(sum(&few), sum(&all), "{few}");
    assert!(
        few["bytes"].as_u64().unwrap() * 4 < all["bytes"].as_u64().unwrap(),
        "{few}"
    );
    let none = Asked::of(&storage, json!({ "query": "pid == 5" }));
    let list = none.list(&mut api, 8);
    assert_eq!(
        (list["chunks_kept"].as_u64(), list["bytes"].as_u64()),
        (Some(0), Some(0))
    );
    let splits = none.splits(&mut api, 8);
    assert_eq!(
        splits.len(),
        1,
        "there is always one, with the columns of a table"
    );
    assert_eq!(none.count(&mut api, &json!({ "split": splits[0] })), 0);
    // A split reads its own chunks only.
    let asked = Asked::of(&storage, json!({}));
    let splits = asked.splits(&mut api, 4);
    let mut read = 0;
    for split in &splits {
        let more = json!({ "split": split, "explain": true, "query": "" });
        let lines = asked.lines(&mut api, &more);
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        read += last["explain"]["fetched_bytes"].as_u64().unwrap();
    }
    assert_eq!(read, all["bytes"].as_u64().unwrap());
}

#[test]
fn the_split_with_the_damage_tells_it() {
    for is_final in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"), &settings());
        let mut api = server.api();
        let storage = api.create_storage("damaged");
        push_lines(&server, &storage, folder.path(), "all.pfw", &lines(0..900));
        if is_final {
            api.finalize(&storage);
            wait_for_indexes(&server, &storage);
        }
        let asked = Asked::of(&storage, json!({}));
        let packets = api.done("GET", &format!("/storages/{storage}/descriptors"), None);
        let packets = packets["items"].as_array().unwrap();
        let packet = &packets[packets.len() / 2];
        let file = server.data().join("storages").join(&storage);
        let file = file.join(packet["file"].as_str().unwrap());
        let mut bytes = fs::read(&file).unwrap();
        bytes[usize::try_from(packet["offset"].as_u64().unwrap()).unwrap() + 9] ^= 0x40;
        fs::write(&file, bytes).unwrap();
        let whole = asked.lines(&mut api, &json!({}));
        let lost = packet["events"].as_u64().unwrap();
        let splits = asked.splits(&mut api, 5);
        assert_eq!(splits.len(), 5);
        let (mut found, mut tellers) = (0, 0);
        for split in &splits {
            let answer = asked.answer(&mut api, &json!({ "split": split }));
            let skipped = answer.header("tracehold-skipped").unwrap().to_owned();
            tellers += u64::from(skipped != "0");
            let text = String::from_utf8(answer.body).unwrap();
            let is_event = |line: &&str| !line.starts_with("{\"summary\"");
            found += text.lines().filter(is_event).count() as u64;
            let strict = json!({ "split": split, "strict": true });
            let strict = api.call("POST", &asked.path, Some(&strict));
            assert_eq!(strict.status, if skipped == "0" { 200 } else { 409 });
        }
        assert_eq!((found, tellers), (900 - lost, 1), "finalized: {is_final}");
        assert_eq!(whole.len() as u64, found);
    }
}

/// What an index knows of, and no chunk contains, is told with the beginning of the stream.
#[test]
fn what_only_the_index_knows_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let storage = api.create_storage("broken");
    let text = lines(0..900).replacen("\"id\":777,", "\"id\":,", 1);
    push_lines(&server, &storage, folder.path(), "all.pfw", &text);
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let asked = Asked::of(&storage, json!({ "to": "1700000000000300000" }));
    let whole = asked.answer(&mut api, &json!({}));
    assert_eq!(whole.header("tracehold-skipped"), Some("1"));
    let splits = asked.splits(&mut api, 3);
    let told = splits.iter().map(|split| {
        let answer = asked.answer(&mut api, &json!({ "split": split }));
        answer.header("tracehold-skipped").unwrap().to_owned()
    });
    let told: Vec<String> = told.collect();
    assert!(told.len() > 1 && told[0] == "1", "{told:?}");
    assert!(told[1..].iter().all(|told| told == "0"), "{told:?}");
}

#[test]
fn a_split_is_answered_in_every_format() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("formats");
    push_lines(&server, &storage, folder.path(), "all.pfw", &lines(0..300));
    let asked = Asked::of(&storage, json!({ "query": "name == 'read'" }));
    let split = asked.splits(&mut api, 2).remove(1);
    for format in [
        "ndjson", "csv", "text", "arrow", "parquet", "perfetto", "chrome",
    ] {
        let more = json!({ "split": split, "format": format });
        let answer = asked.answer(&mut api, &more);
        assert!(!answer.body.is_empty(), "{format}");
        let whole = asked.answer(&mut api, &json!({ "format": format }));
        assert!(answer.body.len() < whole.body.len(), "{format}");
    }
    let first = json!({ "split": split, "limit": 3, "order_by": "id desc" });
    assert_eq!(asked.lines(&mut api, &first).len(), 3);
}

#[test]
fn what_is_no_split_of_the_query_is_refused() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("refused");
    push_lines(&server, &storage, folder.path(), "all.pfw", &lines(0..300));
    let query = format!("/storages/{storage}/query");
    let splits = format!("{query}/splits");
    for count in [json!(0), json!(10_001), json!(null)] {
        let body = json!({ "count": count });
        let problem = api.refused("POST", &splits, Some(&body));
        assert_eq!(problem.status, 400, "{count}");
    }
    // Without a number it is the whole query.
    let whole = api.call("POST", &splits, Some(&json!({})));
    assert_eq!(whole.json()["splits"].as_array().unwrap().len(), 1);
    let other = api.refused("POST", &splits, Some(&json!({ "count": 2, "limit": 1 })));
    assert_eq!(other.code, "json_malformed");
    let expression = api.refused(
        "POST",
        &splits,
        Some(&json!({ "count": 2, "query": "a ==" })),
    );
    assert_eq!(expression.code, "expression_malformed");
    let asked = Asked::of(&storage, json!({}));
    let split = asked.splits(&mut api, 2).remove(0);
    let mut refused = |body: Value| api.refused("POST", &query, Some(&body));
    for wrong in [
        "",
        "A",
        "%%%%",
        &split[1..],
        &split[..split.len() - 4],
        &format!("{split}AAAA"),
    ] {
        assert_eq!(
            refused(json!({ "split": wrong })).code,
            "split_malformed",
            "{wrong}"
        );
    }
    for more in [
        json!({ "query": "pid == 1" }),
        json!({ "from": "5" }),
        json!({ "derived": true }),
    ] {
        let mut body = more.clone();
        body["split"] = json!(split);
        assert_eq!(refused(body).code, "split_malformed", "{more}");
    }
    let another = api.create_storage("another");
    let body = json!({ "split": split });
    let path = format!("/storages/{another}/query");
    assert_eq!(
        api.refused("POST", &path, Some(&body)).code,
        "split_outdated"
    );
    let all = Asked {
        path: "/query".to_owned(),
        body: json!({}),
    };
    assert_eq!(all.count(&mut api, &body), asked.count(&mut api, &body));
    api.done("DELETE", &format!("/storages/{storage}"), None);
    assert_eq!(
        api.refused("POST", "/query", Some(&body)).code,
        "split_outdated"
    );
}
