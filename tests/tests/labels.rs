//! Labels: typed, single or multiple, suggested, usable as filters, and durable.

use harness::{Agent, Api, Request, Server, payload};
use serde_json::{Value, json};

fn listed(api: &mut Api, filter: &str) -> Vec<String> {
    let filter = filter.replace('<', "%3C").replace('>', "%3E");
    let page = api.done("GET", &format!("/storages?{filter}"), None);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| item["name"].as_str().unwrap().to_owned())
        .collect()
}

fn labels(api: &mut Api, storage: &str) -> Vec<(String, Value)> {
    let page = api.done("GET", &format!("/storages/{storage}/labels"), None);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|label| {
            (
                label["type"].as_str().unwrap().to_owned(),
                label["values"].clone(),
            )
        })
        .collect()
}

fn label(api: &mut Api, storage: &str, name: &str) -> Value {
    let labels = labels(api, storage);
    let found = labels.into_iter().find(|(found, _)| found == name);
    found.map_or(Value::Null, |(_, values)| values)
}

fn refused(api: &mut Api, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let problem = api.refused(method, path, body);
    (problem.status, problem.code)
}

#[test]
fn storages_are_found_by_typed_labels() {
    let (_folder, mut server, mut api) = Server::fresh();
    let create = |api: &mut Api, name: &str, labels: Value| {
        let body = json!({ "name": name, "open": true, "labels": labels });
        let storage = api.done("POST", "/storages", Some(&body));
        storage["id"].as_str().unwrap().to_owned()
    };
    let good = create(
        &mut api,
        "good",
        json!({ "rating": 10, "status": "checked", "plain": "x" }),
    );
    let poor = create(
        &mut api,
        "poor",
        json!({ "rating": "2.50", "use_case": ["io", "cache"] }),
    );
    let none = create(&mut api, "none", json!({}));
    assert_eq!(
        api.storage(&good)["labels"],
        json!({ "rating": "10", "status": "checked", "plain": "x" })
    );
    assert_eq!(
        api.storage(&poor)["labels"],
        json!({ "rating": "2.5", "use_case": ["io", "cache"] })
    );
    assert_eq!(label(&mut api, &good, "rating"), json!([10]));
    for (filter, expected) in [
        ("label=rating", &["good", "poor"][..]),
        ("label=rating:10", &["good"]),
        ("label=rating>=2.5", &["good", "poor"]),
        ("label=rating>2.5", &["good"]),
        ("label=rating<10", &["poor"]),
        ("label=rating!=10", &["poor"]),
        ("label=rating>1&label=status=checked", &["good"]),
        ("label=use_case:cache", &["poor"]),
        ("label=plain:x", &["good"]),
        ("label=plain:y", &[]),
        ("label=creation_date>2020-01-01", &["good", "poor", "none"]),
        ("label=creation_date<2020-01-01", &[]),
    ] {
        assert_eq!(listed(&mut api, filter), expected, "{filter}");
    }
    for filter in [
        "rating>=abc",
        "rating:good",
        "creation_date>soon",
        "data_time_frame:soon",
        "nobody",
        "nobody:x",
    ] {
        let path = format!("/storages?label={}", filter.replace('>', "%3E"));
        let refused = api.refused("GET", &path, None);
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (400, "query_malformed")
        );
        let detail = refused.document["detail"].as_str().unwrap();
        assert!(detail.contains(filter), "{detail}");
    }
    for body in [
        json!({ "labels": { "rating": "good" } }),
        json!({ "labels": { "creation_date": "2026-01-01" } }),
        json!({ "labels": { "status": ["one", "two"] } }),
        json!({ "labels": { "status": { "a": 1 } } }),
    ] {
        let path = format!("/storages/{none}");
        assert_eq!(
            refused(&mut api, "PATCH", &path, Some(&body)),
            (400, "invalid_value".into())
        );
    }
    let unknown = refused(&mut api, "GET", "/storages?labels=x", None);
    assert_eq!(unknown, (400, "query_malformed".into()));
    // The storage files are authoritative: neither the catalog nor the types are needed.
    server.kill();
    std::fs::remove_dir_all(server.data().join("catalog")).unwrap();
    server.restart();
    let mut api = server.api();
    assert_eq!(listed(&mut api, "label=rating<10"), ["poor"]);
    assert_eq!(label(&mut api, &poor, "use_case"), json!(["io", "cache"]));
}

#[test]
fn types_and_values_are_managed() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("labelled");
    let path = format!("/storages/{storage}/labels");
    let declared = json!({ "value_type": "date", "several": true, "values": ["2026-11-21"] });
    let shown = api.done("PUT", "/label-types/release", Some(&declared));
    assert_eq!(shown["values"][0]["value"], "2026-11-21T00:00:00Z");
    for value in ["2026-01-01", "2026-02-01T00:00:00Z", "2026-01-01"] {
        let label = json!({ "type": "release", "value": value });
        api.done("POST", &path, Some(&label));
    }
    let both = json!(["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]);
    assert_eq!(label(&mut api, &storage, "release"), both);
    let wrong = json!({ "type": "release", "value": "soon" });
    assert_eq!(
        refused(&mut api, "POST", &path, Some(&wrong)),
        (400, "invalid_value".into())
    );
    // Suggestions: stored values and those in use.
    let types = api.done("GET", "/label-types", None);
    let types = types["items"].as_array().unwrap().clone();
    assert!(
        types
            .iter()
            .any(|known| known["name"] == "assignee" && known["predefined"] == true)
    );
    let release = types
        .iter()
        .find(|known| known["name"] == "release")
        .unwrap();
    assert_eq!(
        (
            &release["storages"],
            release["values"].as_array().unwrap().len()
        ),
        (&json!(1), 3)
    );
    // A type in use cannot change to one that its values do not fit.
    let number = json!({ "value_type": "number" });
    let in_use = (409, "label_in_use".to_owned());
    assert_eq!(
        refused(&mut api, "PUT", "/label-types/release", Some(&number)),
        in_use
    );
    let fixed = (409, "label_type_fixed".to_owned());
    assert_eq!(
        refused(&mut api, "PUT", "/label-types/status", Some(&number)),
        fixed
    );
    assert_eq!(
        refused(&mut api, "DELETE", "/label-types/status", None),
        fixed
    );
    // Values and types are removed from storages only on request.
    let value = "/label-types/release/values/2026-01-01T00:00:00Z";
    assert_eq!(refused(&mut api, "DELETE", value, None), in_use);
    api.done("DELETE", &format!("{value}?remove=true"), None);
    assert_eq!(
        label(&mut api, &storage, "release"),
        json!(["2026-02-01T00:00:00Z"])
    );
    server.kill();
    server.restart();
    let mut api = server.api();
    let release = api.done("GET", "/label-types/release", None);
    assert_eq!(
        (&release["value_type"], &release["several"]),
        (&json!("date"), &json!(true))
    );
    assert_eq!(
        refused(&mut api, "DELETE", "/label-types/release", None),
        in_use
    );
    api.done("DELETE", "/label-types/release?remove=true", None);
    assert_eq!(label(&mut api, &storage, "release"), Value::Null);
    let missing = refused(&mut api, "GET", "/label-types/release", None);
    assert_eq!(missing, (404, "label_not_found".into()));
    // A new value replaces the old one if the type allows only one.
    for value in ["red", "green"] {
        api.done(
            "POST",
            &path,
            Some(&json!({ "type": "status", "value": value })),
        );
        assert_eq!(label(&mut api, &storage, "status"), json!([value]));
    }
    api.done(
        "PUT",
        &format!("{path}/use_case"),
        Some(&json!({ "value": ["a", "b"] })),
    );
    api.done("DELETE", &format!("{path}/use_case?value=a"), None);
    assert_eq!(label(&mut api, &storage, "use_case"), json!(["b"]));
    api.done("DELETE", &format!("{path}/use_case"), None);
    let again = refused(&mut api, "DELETE", &format!("{path}/use_case"), None);
    assert_eq!(again, (404, "label_not_found".into()));
}

#[test]
fn the_server_sets_labels_itself() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("known");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, &payload(1, 0, 100));
    assert_eq!(
        label(&mut api, &storage, "creation_date"),
        json!([api.storage(&storage)["created"]])
    );
    api.finalize(&storage);
    let read = |reader: &str| {
        let path = format!("/storage/{storage}/{storage}.storage");
        let request = Request::new("GET", &path).header("tracehold-reader", reader);
        let response = server.api().send(&request).unwrap();
        assert_eq!(response.status, 200, "{}", response.brief());
    };
    ["ann", "bob", "ann"].into_iter().for_each(read);
    assert_eq!(
        label(&mut api, &storage, "explored_by"),
        json!(["ann", "bob"])
    );
    let found = listed(&mut api, "label=explored_by:bob");
    assert_eq!(found, ["known"]);
    let arguments = [
        "storage",
        "label",
        "known",
        "rating=4",
        "--remove",
        "explored_by=bob",
    ];
    let url = server.url();
    let arguments = arguments.into_iter().chain(["--json", "--server", &url]);
    let arguments: Vec<String> = arguments.map(str::to_owned).collect();
    let output = harness::run_tracehold(&arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(label(&mut api, &storage, "explored_by"), json!(["ann"]));
    assert_eq!(label(&mut api, &storage, "rating"), json!([4]));
    assert_eq!(
        api.verify(&storage),
        [] as [Value; 0],
        "labels of a finalized storage may change"
    );
}
