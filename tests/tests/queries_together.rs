//! Several queries in one request: each answer is that of the query alone, in the order of the
//! queries, and the problem of one of them is its own.

use harness::{Request, Server};
use serde_json::{Value, json};

use crate::queries::{push, settings, wait_for_indexes, write_trace};

const EVENTS: u64 = 3_000;

fn stored(server: &Server, folder: &std::path::Path) -> String {
    let trace = folder.join("trace.pfw");
    write_trace(&trace, EVENTS);
    let storage = server.api().create_storage("stored");
    push(server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

fn lines(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let lines = text.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

fn together(server: &Server, storage: &str, queries: &[Value]) -> Vec<Value> {
    let path = format!("/storages/{storage}/queries");
    let body = json!({ "queries": queries });
    let response = server.api().call("POST", &path, Some(&body));
    assert_eq!(response.status, 200, "{}", response.brief());
    lines(&response.body)
}

/// How many queries were answered by reading something.
fn finished(server: &Server) -> u64 {
    let response = server.api().send(&Request::new("GET", "/metrics")).unwrap();
    let text = String::from_utf8(response.body).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("tracehold_queries_total "));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Queries of every kind of result.
fn queries() -> Vec<Value> {
    vec![
        json!({ "every": "1ms", "group_by": "name", "aggregate": "count", "order_by": "ts" }),
        json!({ "query": "dur > 5us", "count": true }),
        json!({ "fields": ["ts", "name"], "limit": 700, "offset": 11 }),
        json!({ "list_fields": true }),
        json!({ "query": "name == 'nothing'" }),
        json!({}),
    ]
}

#[test]
fn each_answer_is_that_of_the_query_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = stored(&server, folder.path());
    let alone = |query: &Value| {
        let path = format!("/storages/{storage}/query");
        let response = server.api().call("POST", &path, Some(query));
        let text = String::from_utf8(response.body).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.collect::<Vec<Value>>()
    };
    // Twice, because a server caches aggregates.
    for _ in 0..2 {
        let answers = together(&server, &storage, &queries());
        assert_eq!(answers.len(), queries().len());
        for (query, answer) in queries().iter().zip(&answers) {
            assert_eq!(answer["rows"], json!(alone(query)), "{query}");
            assert_eq!(answer["skipped"], json!([]), "{query}");
            assert_eq!(answer["skipped_records"], 0, "{query}");
        }
        assert_eq!(answers[5]["matched"], EVENTS);
    }
    // A number that is known is not determined again, and that of other events is not taken for it.
    let begun = finished(&server);
    let from = |from: u64| json!({ "from": 1_000_000_000 + from * 10_000, "count": true });
    let few = json!({ "from": 1_000_000_000 + 50_000, "matched_max": 9 });
    let asked = [
        from(5),
        from(7),
        few,
        from(5),
        json!({ "query": "dur >= 0us", "from": 1_000_050_000_u64, "count": true }),
    ];
    let answers = together(&server, &storage, &asked);
    let matched: Vec<&Value> = answers.iter().map(|answer| &answer["matched"]).collect();
    assert_eq!(
        matched,
        [EVENTS - 5, EVENTS - 7, EVENTS - 5, EVENTS - 5, EVENTS - 5]
    );
    for (at, answer) in answers.iter().enumerate() {
        let rows = if at == 2 {
            json!([])
        } else {
            json!([{ "count": answer["matched"] }])
        };
        assert_eq!(answer["rows"], rows);
    }
    assert_eq!(finished(&server) - begun, 3);
}

#[test]
fn rows_can_be_wanted_only_if_they_are_few() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = stored(&server, folder.path());
    for (most, rows) in [(EVENTS - 1, 0), (EVENTS, EVENTS), (EVENTS + 1, EVENTS)] {
        let query = json!({ "fields": ["ts"], "matched_max": most });
        let answers = together(&server, &storage, std::slice::from_ref(&query));
        assert_eq!(answers[0]["matched"], EVENTS, "{most}");
        assert_eq!(
            answers[0]["rows"].as_array().unwrap().len() as u64,
            rows,
            "{most}"
        );

        let path = format!("/storages/{storage}/query");
        let alone = server.api().call("POST", &path, Some(&query));
        let matched = alone.header("tracehold-matched").map(str::to_owned);
        let found = String::from_utf8(alone.body).unwrap().lines().count() as u64;
        assert_eq!(found, rows, "{most}");
        if rows == 0 {
            assert_eq!(matched, Some(EVENTS.to_string()));
        }
    }
}

#[test]
fn an_estimate_is_said_and_what_is_missing_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"), &settings());
    let storage = stored(&server, folder.path());
    let over_time = json!({
        "every": "7us", "group_by": "name", "aggregate": "count", "estimate": true
    });
    let answers = together(&server, &storage, &[over_time]);
    let note = answers[0]["notes"][0].as_str().unwrap();
    assert!(note.contains("estimate"), "{note}");

    let damaged = crate::repair::damaged(&mut server, "damaged");
    server.api().done(
        "POST",
        &format!("/storages/{damaged}/verify?repair=confirm"),
        None,
    );
    let rows = json!({});
    let count = json!({ "count": true });
    for answer in together(&server, &damaged, &[rows, count]) {
        assert_ne!(answer["skipped"], json!([]), "{answer}");
        assert_ne!(answer["skipped_records"], 0, "{answer}");
        // It is said once, and not as a row.
        let rows = answer["rows"].as_array().unwrap();
        assert!(
            rows.iter().all(|row| row.get("summary").is_none()),
            "{answer}"
        );
    }
}

#[test]
fn the_problem_of_one_query_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"), &settings());
    let damaged = crate::repair::damaged(&mut server, "damaged");
    server.api().done(
        "POST",
        &format!("/storages/{damaged}/verify?repair=confirm"),
        None,
    );
    let count = json!({ "count": true });
    let strict = json!({ "strict": true });
    let answers = together(&server, &damaged, &[count.clone(), strict, count]);
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0], answers[2]);
    assert!(answers[0]["rows"][0]["count"].is_number());
    let problem = &answers[1]["problem"];
    assert_eq!(problem["code"], "result_incomplete", "{}", answers[1]);
    assert_eq!(problem["status"], 409);
    assert_ne!(problem["instance"], "");
}

#[test]
fn what_cannot_be_asked_together_is_refused_before_anything_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = stored(&server, folder.path());
    let path = format!("/storages/{storage}/queries");
    let many = |count: usize| json!({ "queries": vec![json!({ "count": true }); count] });
    let second = |query: Value| json!({ "queries": [{ "count": true }, query] });
    for (body, code, number) in [
        (json!({}), "json_malformed", None),
        (many(0), "query_malformed", None),
        (many(17), "query_malformed", None),
        (
            second(json!({ "query": "dur >" })),
            "expression_malformed",
            Some(1),
        ),
        (
            second(json!({ "format": "csv" })),
            "query_malformed",
            Some(1),
        ),
        (
            second(json!({ "explain": true })),
            "query_malformed",
            Some(1),
        ),
        (
            second(json!({ "storages": [] })),
            "query_malformed",
            Some(1),
        ),
        (
            second(json!({ "count": true, "matched_max": 1 })),
            "query_malformed",
            Some(1),
        ),
    ] {
        let problem = server.api().refused("POST", &path, Some(&body));
        assert_eq!((problem.status, &*problem.code), (400, code), "{body}");
        assert_eq!(
            problem.document.get("number").and_then(Value::as_u64),
            number,
            "{body}"
        );
    }
    assert_eq!(
        together(&server, &storage, &vec![json!({ "count": true }); 16]).len(),
        16
    );
    let nowhere = "/storages/01932c5e-0000-7000-8000-000000000000/queries";
    let problem = server.api().refused("POST", nowhere, Some(&many(1)));
    assert_eq!(problem.status, 404);
}

/// The number of events is known from the rows, but not what must be said of it.
#[test]
fn what_must_be_known_is_told_by_each_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let trace = folder.path().join("trace.json");
    let record = |phase: &str| format!(r#"{{"ph":"{phase}","pid":1,"tid":1,"ts":1,"name":"a"}}"#);
    std::fs::write(&trace, format!("[{},{}]", record("B"), record("I"))).unwrap();
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &trace, "16384");
    let query = "dur is null";
    let rows = json!({ "query": query, "fields": ["name"] });
    let found = together(
        &server,
        &storage,
        &[rows, json!({ "query": query, "count": true })],
    );
    assert_eq!(found[1]["rows"], json!([{ "count": 2 }]));
    let notes = found[0]["notes"].as_array().unwrap();
    assert_eq!((notes.len(), &found[1]["notes"]), (1, &found[0]["notes"]));
}
