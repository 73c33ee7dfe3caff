//! Traces with different units of time in one query: a number without a unit has the unit of those
//! that the query does not exclude by their origin.

use std::fs;

use harness::Server;
use serde_json::json;

use crate::queries::{mount, push, run, settings};

/// Two traces of one event each: of 5 µs, and of 5 ns.
fn traces() -> [(&'static str, String); 2] {
    let event =
        "{\"name\":\"a\",\"cat\":\"c\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":5,\"ph\":\"X\"}\n";
    let unit = "{\"name\":\"CM\",\"cat\":\"dftracer\",\"ph\":\"M\",\"pid\":1,\"tid\":2,\
                \"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n";
    [
        ("us.pfw", event.to_owned()),
        ("ns.pfw", format!("{unit}{event}")),
    ]
}

const SEVERAL: &str = "the traces read here have different units of time";

#[test]
fn a_bare_number_has_the_unit_of_what_is_not_excluded() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("units");
    let url = server.url();
    let traces = traces().map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        push(&server, &storage, &path, "4096");
        path.to_str().unwrap().to_owned()
    });
    let mut sources: Vec<Vec<&str>> = vec![
        traces.iter().map(String::as_str).collect(),
        vec!["--server", &url, "--storage", &storage],
    ];
    let mounted = folder.path().join("mount");
    let check = |source: &[&str], query: &str, expected: Result<&str, &str>| {
        let words = [&["query", "--count"], source, &[query]].concat();
        let (_, out, errors) = run(&words);
        match expected {
            Ok(count) => assert_eq!((out.trim(), &*errors), (count, ""), "{words:?}"),
            Err(error) => assert!(errors.contains(error), "{words:?}: {out} {errors}"),
        }
    };
    let queries = [
        ("dur >= 5", Err(SEVERAL)),
        ("kind == 'dft' and dur >= 5", Err(SEVERAL)),
        ("stream ~ 'us' and dur == 5", Ok("1")),
        ("stream ~ 'us' and dur == 5us", Ok("1")),
        ("stream ~ 'ns.pfw' and dur == 5", Ok("1")),
        ("stream ~ 'ns.pfw' and (dur == 5 or ts == 7)", Ok("1")),
        ("stream ~ 'ns.pfw' and dur == 0.005", Ok("0")),
        ("not (stream ~ 'us.pfw') and dur == 5ns", Ok("1")),
        ("stream ~ 'us' or dur == 5", Err(SEVERAL)),
        ("stream == 'nosuch' and dur == 5", Ok("0")),
    ];
    for source in &sources {
        for (query, expected) in queries {
            check(source, query, expected);
        }
    }
    server.api().finalize(&storage);
    mount(&server, &storage, &mounted);
    sources = vec![vec!["--dir", mounted.to_str().unwrap()]];
    for (query, expected) in queries {
        check(&sources[0], query, expected);
    }
    let split = |query: &str, from: &str| {
        let body = json!({ "query": query, "count": 2, "from": from, "bare_times": ["from"] });
        let path = format!("/storages/{storage}/query/splits");
        server.api().call("POST", &path, Some(&body)).status
    };
    assert_eq!(split("stream ~ 'ns.pfw' and dur == 5", "0"), 200);
    assert_eq!(split("dur == 5", "0"), 400);
    // The limits of the window are read alike.
    let from = ["--from", "1795222800000000000"];
    let files = &traces.each_ref().map(String::as_str)[..];
    for (query, code) in [("stream ~ 'ns.pfw'", 1), ("name == 'a'", 2)] {
        let (found, _, errors) = run(&[&["query"], files, &from, &[query]].concat());
        assert_eq!(found, code, "{query} {errors}");
    }
}
