//! `GET /api/v1/changes`: whoever follows is told what changed and may be seen, misses nothing when
//! it comes back, and costs the server nothing when it is slow.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Agent, Request, Server, Settings, without};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that follows changes.
struct Follower {
    stream: TcpStream,
    /// Everything that was received.
    text: String,
    /// How much of it the test has looked at.
    seen: usize,
}

impl Follower {
    fn open(server: &Server, target: &str, fields: &str) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let short = Duration::from_millis(50);
        stream.set_read_timeout(Some(short)).unwrap();
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"
        )
        .unwrap();
        Self {
            stream,
            text: String::new(),
            seen: 0,
        }
    }

    fn of(server: &Server, fields: &str) -> Self {
        let mut follower = Self::open(server, "/api/v1/changes", fields);
        let head = follower.until("retry: 2000");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"),
            "{head}"
        );
        follower
    }

    /// Receives what has come; whether more may come.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 65536];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(length) => {
                self.text += &String::from_utf8_lossy(&bytes[..length]);
                true
            }
            Err(_) => true,
        }
    }

    /// What comes until and with a text.
    fn until(&mut self, wanted: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text[self.seen..].find(wanted) {
                let found = self.text[self.seen..][..at + wanted.len()].to_owned();
                self.seen += found.len();
                return found;
            }
            assert!(
                self.receive() && Instant::now() < end,
                "{wanted:?} never comes: {}",
                &self.text[self.seen..]
            );
        }
    }

    /// What comes in some time.
    fn during(&mut self, seconds: f32) -> &str {
        let (end, from) = (
            Instant::now() + Duration::from_secs_f32(seconds),
            self.text.len(),
        );
        while Instant::now() < end && self.receive() {}
        &self.text[from..]
    }

    fn last_id(&self) -> &str {
        let at = self.text.rfind("\nid: ").unwrap();
        self.text[at + 5..].lines().next().unwrap()
    }
}

fn rename(server: &Server, storage: &str, name: &str) {
    let path = format!("/storages/{storage}");
    let body = json!({ "name": name });
    server.api().done("PATCH", &path, Some(&body));
}

#[test]
fn changes_are_told_and_missed_by_nobody_who_comes_back() {
    let (_folder, server, mut api) = Server::fresh();
    let old = api.create_storage("old");
    let mut follower = Follower::of(&server, "");
    // What there is can be loaded, and is not told.
    follower.until("event: reset");
    assert!(!follower.during(1.5).contains("event: storage"));

    let storage = api.create_storage("made");
    follower.until("event: storage");
    follower.until("\"name\":\"made\"");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, b"a packet");
    follower.until("\"write_status\":\"GOOD\",\"arrived\":1");
    follower.until("event: agent");
    follower.until("\"activity\":{\"packets\":1,");
    let recording = json!({ "name": "recorded" });
    let recording = api.done("POST", "/recordings", Some(&recording));
    let id = recording["id"].as_str().unwrap();
    follower.until("event: recording");
    follower.until(id);
    let verify = format!("/storages/{storage}/verify");
    api.done("POST", &verify, None);
    follower.until("event: job");
    follower.until("\"kind\":\"verify\"");

    let field = format!("last-event-id: {}\r\n", follower.last_id());
    drop(follower);
    let deleted = api.call("DELETE", &format!("/storages/{storage}"), None);
    assert_eq!(deleted.status, 204);
    let deleted = api.call("DELETE", "/agents/host", None);
    assert_eq!(deleted.status, 204);
    rename(&server, &old, "renamed");
    let mut again = Follower::of(&server, &field);
    again.until("\"name\":\"renamed\"");
    again.during(1.0);
    let gone = format!("{{\"kind\":\"storage\",\"id\":\"{storage}\"}}");
    assert!(again.text.contains(&gone), "{}", again.text);
    let gone = "{\"kind\":\"agent\",\"id\":\"host\"}";
    assert!(again.text.contains(gone), "{}", again.text);
    assert!(!again.text.contains("event: reset"), "{}", again.text);

    for foreign in ["01932c5e000070008000000000000000-1", "x", ""] {
        let mut other = Follower::of(&server, &format!("last-event-id: {foreign}\r\n"));
        other.until("event: reset");
    }
    for (target, status) in [
        ("?storage=01932c5e-0000-7000-8000-000000000000", "404"),
        ("?since=1", "400"),
    ] {
        let mut refused = Follower::open(&server, &format!("/api/v1/changes{target}"), "");
        refused.until(&format!("HTTP/1.1 {status}"));
    }
}

#[test]
fn slow_followers_skip_states() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("s");
    let other = api.create_storage("other");
    let target = format!("/api/v1/changes?storage={storage}");
    let mut follower = Follower::open(&server, &target, "");
    follower.until("event: reset");
    for number in 0..300 {
        rename(&server, &storage, &format!("name {number}"));
    }
    rename(&server, &other, "not asked for");
    rename(&server, &storage, "the last name");
    follower.until("\"name\":\"the last name\"");
    let told = follower.text.matches("event: storage").count();
    assert!(told < 60, "{told}");
    follower.during(1.0);
    assert!(!follower.text.contains("not asked for"));
}

/// Sends a request with a token, and returns what the server answers.
fn call(server: &Server, token: Option<&str>, method: &str, path: &str, body: &Value) -> Value {
    let (path, body) = (format!("/api/v1{path}"), body.to_string());
    let mut request = Request::new(method, &path).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let answer = server.api().send(&request.body(body.as_bytes())).unwrap();
    assert!(answer.status < 300, "{path}: {}", answer.brief());
    answer.json()
}

#[test]
fn followers_see_what_their_token_may_and_end_with_it() {
    let (_folder, server, mut api) = Server::fresh();
    let own = api.create_storage("own");
    let foreign = api.create_storage("foreign");
    let mut open = Follower::of(&server, "");
    let text = |created: &Value| created["token"].as_str().unwrap().to_owned();
    let first = json!({ "name": "n", "role": "operator" });
    let operator = text(&call(&server, None, "POST", "/tokens", &first));
    // It had no token, and now it needs one.
    open.until("{\"code\":\"token_required\"}");
    let as_operator =
        |method: &str, path: &str, body: &Value| call(&server, Some(&operator), method, path, body);
    let new = |spec: Value| as_operator("POST", "/tokens", &spec);
    let reader = text(&new(json!({ "name": "n", "role": "reader" })));
    let created = new(json!({ "name": "n", "role": "reader", "storages": [own] }));
    let scoped = text(&created);
    let brief = json!({ "name": "n", "role": "reader", "expires_seconds": 3 });
    let brief = text(&new(brief));
    let agent = text(&new(json!({ "name": "n", "role": "agent" })));
    let field = |token: &str| format!("authorization: Bearer {token}\r\n");

    let mut brief = Follower::of(&server, &field(&brief));
    let mut all = Follower::of(&server, &field(&reader));
    let mut one = Follower::of(&server, &field(&scoped));
    all.until("event: reset");
    one.until("event: reset");
    let renamed = |id: &str, name: &str| {
        let path = format!("/storages/{id}");
        as_operator("PATCH", &path, &json!({ "name": name }));
    };
    renamed(&foreign, "foreign again");
    as_operator("POST", "/recordings", &json!({ "name": "recorded" }));
    renamed(&own, "own again");
    all.during(1.5);
    for told in ["foreign again", "own again"] {
        assert!(all.text.contains(told), "{told}: {}", all.text);
    }
    assert!(all.text.contains("event: recording"));
    one.until("own again");
    one.during(1.0);
    for hidden in ["foreign", "event: recording", "event: buffer", "recorded"] {
        assert!(!one.text.contains(hidden), "{hidden}: {}", one.text);
    }
    brief.until("{\"code\":\"token_invalid\"}");

    let refused = |target: &str, token: &str, status: &str| {
        let target = format!("/api/v1/changes{target}");
        let mut refused = Follower::open(&server, &target, &field(token));
        refused.until(&format!("HTTP/1.1 {status}"));
    };
    refused("", &agent, "403");
    let hidden = "01932c5e-0000-7000-8000-000000000000";
    refused(&format!("?storage={hidden}"), &scoped, "404");
    refused(&format!("?storage={hidden}"), &reader, "404");

    let id = created["id"].as_str().unwrap();
    let path = format!("/api/v1/tokens/{id}");
    let revoke = Request::new("DELETE", &path);
    let revoke = revoke.header("authorization", format!("Bearer {operator}"));
    assert!(server.api().send(&revoke).unwrap().status < 300);
    one.until("{\"code\":\"token_invalid\"}");
    // The response is complete.
    one.until("\r\n0\r\n\r\n");
}

#[test]
fn followers_have_a_limit_and_a_sign_of_life() {
    let (_folder, server, _api) = Server::fresh();
    let mut all: Vec<Follower> = (0..32).map(|_| Follower::of(&server, "")).collect();
    let mut refused = Follower::open(&server, "/api/v1/changes", "");
    refused.until("HTTP/1.1 429");
    refused.until("\"code\":\"busy\"");
    all[0].until(": nothing new");
    drop(all);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let mut next = Follower::open(&server, "/api/v1/changes", "");
        if next.until("\r\n").contains(" 200 ") {
            return;
        }
        assert!(Instant::now() < end, "places are never free again");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn followers_do_not_keep_a_server_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut followers: Vec<Follower> = (0..3).map(|_| Follower::of(&server, "")).collect();
    server.terminate();
    for follower in &mut followers {
        follower.until("event: end\ndata: {\"code\":\"stopping\"}");
    }
    assert!(server.wait(Duration::from_secs(10)).success());
}

#[test]
fn changes_come_over_http2() {
    let (_folder, server, mut api) = Server::fresh();
    let url = format!("{}/api/v1/changes", server.url());
    let curl = Command::new("curl")
        .args([
            "--silent",
            "--no-buffer",
            "--http2-prior-knowledge",
            "--include",
        ])
        .args(["--max-time", "5", &url])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(curl) = curl else {
        without("curl");
        return;
    };
    std::thread::sleep(Duration::from_millis(1500));
    api.create_storage("made");
    let told = curl.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.starts_with("HTTP/2 200") && told.contains("\"name\":\"made\""),
        "{told}"
    );
}
