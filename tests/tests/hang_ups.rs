//! A client that hangs up at any moment changes nothing or everything.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use harness::{Api, Random, Request, Server, Settings};
use serde_json::{Value, json};

/// Sends a request and hangs up after `delay`, without reading the answer.
fn hang_up(server: &Server, method: &str, path: &str, fields: &str, body: &Value, delay: Duration) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let fields = format!("content-type: application/json\r\n{fields}");
    let target = (method, &*format!("/api/v1{path}"));
    hang_up_bytes(server, target, &fields, body.as_bytes(), delay);
}

/// Sends a request with this body to a path, and hangs up after `delay`.
pub(crate) fn hang_up_bytes(
    server: &Server,
    (method, path): (&str, &str),
    fields: &str,
    body: &[u8],
    delay: Duration,
) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: tracehold\r\n{fields}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    std::thread::sleep(delay);
    // The server may have closed the connection already.
    drop(stream.shutdown(Shutdown::Both));
}

/// From no time at all to longer than most changes take; many are short.
pub(crate) fn delay(random: &mut Random) -> Duration {
    let limit = [100, 400, 3000][usize::try_from(random.below(3)).unwrap()];
    Duration::from_micros(random.below(limit))
}

fn storages(api: &mut Api, name: &str) -> Vec<Value> {
    let answer = api.done("GET", &format!("/storages?name={name}&limit=1000"), None);
    answer["items"].as_array().unwrap().clone()
}

/// The storages of each name, once no finalization runs: a start continues those that were
/// interrupted behind the open port.
fn settled(server: &Server, names: &[String]) -> Vec<Vec<Value>> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut api = server.api();
        let found: Vec<Vec<Value>> = names.iter().map(|name| storages(&mut api, name)).collect();
        let is_finalizing = |storage: &Value| storage["state"] == "FINALIZING";
        if !found.iter().flatten().any(is_finalizing) || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `hang_ups` on a server, then compares what it shows with what a restart shows.
fn check(seed: u64, hang_ups: impl Fn(&Server, &mut Random) -> Vec<String>) -> Vec<Vec<Value>> {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut random = Random::new(seed);
    let names = hang_ups(&server, &mut random);
    // Changes without a client finish on their own; a clean shutdown waits for them.
    server.terminate();
    assert!(
        server.wait(Duration::from_secs(20)).success(),
        "{}",
        server.log()
    );
    server.restart();
    let first = settled(&server, &names);
    server.kill();
    server.restart();
    let second = settled(&server, &names);
    assert_eq!(first, second, "a second restart shows other storages");
    first
}

#[test]
fn a_creation_with_a_key_makes_one_storage() {
    let found = check(1, |server, random| {
        (0..40)
            .map(|number| {
                let name = format!("created-{number}");
                let key = format!("idempotency-key: {name}\r\n");
                let body = json!({ "name": name, "open": true });
                hang_up(server, "POST", "/storages", &key, &body, delay(random));
                // Its client sends it again, and waits.
                let again = body.to_string();
                let again = Request::new("POST", "/api/v1/storages")
                    .header("idempotency-key", &name)
                    .header("content-type", "application/json")
                    .body(again.as_bytes());
                let answer = server.api().send(&again).unwrap();
                assert!(answer.status < 300, "{}", answer.brief());
                name
            })
            .collect()
    });
    for storages in found {
        assert_eq!(storages.len(), 1, "{storages:?}");
        assert_eq!(storages[0]["state"], "OPEN", "{storages:?}");
    }
}

#[test]
fn a_deletion_removes_the_storage_or_leaves_it() {
    let mut deleted = 0;
    let found = check(2, |server, random| {
        let mut names = Vec::new();
        for number in 0..100 {
            let name = format!("deleted-{number}");
            let id = server.api().create_storage(&name);
            let path = format!("/storages/{id}");
            hang_up(server, "DELETE", &path, "", &Value::Null, delay(random));
            // From the first refusal on it is gone, and stays gone.
            std::thread::sleep(Duration::from_millis(10));
            let mut api = server.api();
            let answer = api.call("GET", &path, None);
            assert!([200, 404].contains(&answer.status), "{}", answer.brief());
            if answer.status == 404 {
                names.push(name);
            }
        }
        names
    });
    for storages in found {
        assert_eq!(storages, Vec::<Value>::new(), "a deleted storage came back");
        deleted += 1;
    }
    assert!(deleted > 0, "no deletion reached the server");
}

#[test]
fn an_update_leaves_the_old_name_or_the_new_one() {
    let found = check(3, |server, random| {
        let mut names = Vec::new();
        for number in 0..100 {
            let id = server.api().create_storage("before");
            let body =
                json!({ "name": format!("after-{number}"), "description": "x".repeat(2000) });
            let path = format!("/storages/{id}");
            hang_up(server, "PATCH", &path, "", &body, delay(random));
        }
        names.push("before".to_owned());
        names.extend((0..100).map(|number| format!("after-{number}")));
        names
    });
    let count: usize = found.iter().map(Vec::len).sum();
    assert_eq!(count, 100, "a storage was lost or doubled: {found:?}");
}

#[test]
fn a_finalization_ends_finalized_or_open() {
    let found = check(4, |server, random| {
        (0..20)
            .map(|number| {
                let name = format!("finalized-{number}");
                let id = server.api().create_storage(&name);
                let path = format!("/storages/{id}/finalize");
                hang_up(server, "POST", &path, "", &Value::Null, delay(random));
                name
            })
            .collect()
    });
    for storages in found {
        assert_eq!(storages.len(), 1, "{storages:?}");
        let state = storages[0]["state"].as_str().unwrap();
        assert!(["OPEN", "FINALIZED"].contains(&state), "{state}");
    }
}
