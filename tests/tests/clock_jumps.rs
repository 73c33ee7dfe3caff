//! A wall clock that is set to another time changes nothing that was agreed before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Agent, Connection, ObjectStore, Request, Server, Settings};
use serde_json::json;

/// The library that shows a program another wall clock.
fn library() -> PathBuf {
    let all = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = all.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    found
        .find(|library| library.exists())
        .expect("`cargo xtask test` installs faketime")
}

/// A server whose wall clock is set by writing to a file.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set("+0");
        clock
    }

    /// Sets the clock to so many seconds from now, or to an absolute time (`@…`).
    fn set(&self, time: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{time}\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
        // Tasks look at the clock every few milliseconds.
        std::thread::sleep(Duration::from_millis(1500));
    }

    fn environment(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", library().to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_RESET", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// The date of a response.
fn date(connection: &mut Connection) -> String {
    let answer = connection.send(&Request::new("GET", "/livez")).unwrap();
    answer
        .header("date")
        .expect("responses have a date")
        .to_owned()
}

/// The times that a clock is set to, and the year that `Date` shows then; the years of the tests
/// that follow begin with 20 in any case.
const JUMPS: [(&str, Option<&str>); 4] = [
    ("@2106-02-07 06:28:20", Some(" 2106 ")),
    ("@1970-01-02 00:00:00", Some(" 1970 ")),
    ("-3700", None),
    ("+7200", None),
];

#[test]
fn recordings_go_on_and_dates_follow_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path());
    let config = "[retention]\nage_seconds_max = 3600\ncheck_seconds = 1\n";
    let settings = Settings {
        environment: clock.environment(),
        ..Settings::with_config(config)
    };
    let server = Server::start(&folder.path().join("data"), &settings);
    let mut api = server.api();
    let old = api.create_storage("old");
    let agent = Agent::declare(&mut api, &old, "host", "stream", "none");
    agent.push(&mut api, 0, b"kept");
    api.finalize(&old);
    let target = api.create_storage("recorded");
    let recording = json!({"storage": target, "duration_seconds": 1800});
    let recording = api.done("POST", "/recordings", Some(&recording));
    let path = format!("/recordings/{}", recording["id"].as_str().unwrap());
    let mut connection = server.connect();
    for (time, year) in JUMPS {
        clock.set(time);
        let first = date(&mut connection);
        if let Some(year) = year {
            assert!(first.contains(year), "{time}: {first}");
        }
        std::thread::sleep(Duration::from_millis(1100));
        assert_ne!(
            date(&mut connection),
            first,
            "{time}: the date stands still"
        );
        let state = api.done("GET", &path, None);
        assert_eq!(state["state"], "ON", "{time}: {state}");
        assert_eq!(api.state(&old), "FINALIZED", "{time}");
        // What is dated is dated as if nothing had happened.
        let made = api.create_storage(time);
        let created = api.storage(&made)["created"].to_string();
        assert!(
            !created.contains("1970") && !created.contains("2106"),
            "{created}"
        );
    }
    assert!(server.log().contains("the wall clock has jumped"));
}

#[test]
fn tokens_neither_expire_nor_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path());
    let settings = Settings {
        environment: clock.environment(),
        ..Settings::default()
    };
    let server = Server::start(&folder.path().join("data"), &settings);
    let create = |bearer: &str, role: &str, expires: Option<u64>| {
        let new = json!({"name": role, "role": role, "agents": [], "storages": [],
                         "expires_seconds": expires});
        let body = new.to_string();
        let request = Request::new("POST", "/api/v1/tokens")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {bearer}"))
            .body(body.as_bytes());
        let created = server.connect().send(&request).unwrap();
        assert_eq!(created.status, 201, "{}", created.brief());
        created.json()["token"].as_str().unwrap().to_owned()
    };
    let lasting = create("none", "operator", None);
    let short = create(&lasting, "reader", Some(3));
    let long = create(&lasting, "reader", Some(3600));
    let status = |token: &str| {
        let bearer = format!("Bearer {token}");
        let request = Request::new("GET", "/api/v1/storages").header("authorization", &bearer);
        server.connect().send(&request).unwrap().status
    };
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(
        (status(&lasting), status(&short), status(&long)),
        (200, 401, 200)
    );
    for (time, _) in JUMPS {
        clock.set(time);
        let found = (status(&lasting), status(&short), status(&long));
        assert_eq!(found, (200, 401, 200), "{time}");
    }
}

/// Signs of life are compared by the clock of the object store: a node whose own clock is wrong
/// takes nobody for gone, and nobody takes it for gone.
#[test]
fn a_node_whose_clock_jumps_takes_nothing_over() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let chained = "durability = \"object\"\nappend_interval_ms = 20\n";
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let clock = Clock::new(folders[1].path());
    let one = Server::start(folders[0].path(), &store.settings("one", chained));
    let mut settings = store.settings("two", chained);
    settings.environment.extend(clock.environment());
    let two = Server::start(folders[1].path(), &settings);
    let storages = [&one, &two].map(|server| server.api().create_storage("first"));
    let agents = storages.clone().map(|storage| {
        Agent::declare(&mut one.api(), &storage, "host", "stream", "none");
        Agent::declare(&mut two.api(), &storage, "host", "stream", "none")
    });
    agents[0].push(&mut one.api(), 0, b"first");
    agents[1].push(&mut two.api(), 0, b"first");
    for (sequence, time) in (1..).zip(["+7200", "-3700", "@2106-02-07 06:28:20", "+0"]) {
        clock.set(time);
        // Two rounds of signs.
        std::thread::sleep(Duration::from_secs(2));
        for (agent, [writer, other]) in agents.iter().zip([[&one, &two], [&two, &one]]) {
            let answer = agent.post(&mut other.api(), sequence, b"next").unwrap();
            assert_eq!(answer.status, 307, "{time}: {}", answer.brief());
            agent.push(&mut writer.api(), sequence, b"next");
        }
        let path = format!("/storages/{}/adopt", storages[0]);
        let refused = two.api().refused("POST", &path, Some(&json!({})));
        assert_eq!(refused.code, "writer_lives", "{time}");
    }
}
