//! The server's API over one connection, one method per call.

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};

use crate::http::{Connection, Request, Response};
use crate::multipart::{Part, parts};

/// A refusal: a problem document (RFC 9457) with a stable code.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The status of the response.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// The complete document.
    pub document: Value,
    /// `Retry-After`, if it was sent.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// Parses a refusal and checks what every problem document promises.
    ///
    /// # Panics
    /// If the response is not a problem document, or lacks one of its fields.
    pub fn of(response: &Response) -> Self {
        let brief = response.brief();
        assert!(response.status >= 400, "not a refusal: {brief}");
        let kind = response.header("content-type").unwrap_or_default();
        assert!(
            kind.starts_with("application/problem+json"),
            "no problem document: {brief}"
        );
        let document = response.json();
        let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
        for field in ["title", "code", "cause", "remedy"] {
            assert!(!text(field).is_empty(), "no {field} in {brief}");
        }
        assert_eq!(
            document["status"], response.status,
            "the statuses differ: {brief}"
        );
        Self {
            status: response.status,
            code: text("code"),
            retry_after: response
                .header("retry-after")
                .and_then(|text| text.parse().ok()),
            document,
        }
    }
}

/// The server's API over one connection. A response without success is a panic, except where a
/// method returns the plain response.
#[derive(Debug)]
pub struct Api {
    connection: Connection,
    token: Option<String>,
}

impl Api {
    /// The API over this connection.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            token: None,
        }
    }

    /// The same; calls have this token.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Sends any request.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn send(&mut self, request: &Request<'_>) -> io::Result<Response> {
        self.connection.send(request)
    }

    /// Whether storages are still being recovered after the start.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn is_recovering(&mut self) -> io::Result<bool> {
        let response = self.send(&Request::new("GET", "/readyz"))?;
        Ok(response.status == 503 && response.json()["code"] == "recovering")
    }

    /// A call with an optional JSON body below `/api/v1`; returns the plain response.
    pub fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Response {
        let path = format!("/api/v1{path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(method, &path).body(body.as_bytes());
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        match self.send(&request) {
            Ok(response) => response,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// A call that must succeed; returns its JSON, `null` for an empty body.
    pub fn done(&mut self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let response = self.call(method, path, body);
        let is_success = (200..300).contains(&response.status);
        assert!(is_success, "{method} {path}: {}", response.brief());
        if response.body.is_empty() {
            Value::Null
        } else {
            response.json()
        }
    }

    /// A call that must be refused.
    pub fn refused(&mut self, method: &str, path: &str, body: Option<&Value>) -> Problem {
        Problem::of(&self.call(method, path, body))
    }

    /// Creates an open storage and returns its id.
    pub fn create_storage(&mut self, name: &str) -> String {
        let storage = self.done(
            "POST",
            "/storages",
            Some(&json!({ "name": name, "open": true })),
        );
        let id = storage["id"]
            .as_str()
            .expect("a storage has an id")
            .to_owned();
        if storage["state"] == "CREATED" {
            self.done("POST", &format!("/storages/{id}/open"), None);
        }
        id
    }

    /// The server's description of a storage.
    pub fn storage(&mut self, id: &str) -> Value {
        self.done("GET", &format!("/storages/{id}"), None)
    }

    /// The state of a storage.
    pub fn state(&mut self, id: &str) -> String {
        self.storage(id)["state"]
            .as_str()
            .expect("a storage has a state")
            .to_owned()
    }

    /// Finalizes a storage.
    pub fn finalize(&mut self, id: &str) -> Value {
        self.done("POST", &format!("/storages/{id}/finalize"), None)
    }

    /// The write status of a storage.
    pub fn status(&mut self, id: &str) -> Value {
        self.done("GET", &format!("/storages/{id}/status"), None)
    }

    /// The leaves of a storage that have packets.
    pub fn leaves(&mut self, id: &str) -> BTreeSet<String> {
        let mut leaves = BTreeSet::new();
        let mut path = format!("/storages/{id}/descriptors?limit=1000");
        loop {
            let page = self.done("GET", &path, None);
            let items = page["items"].as_array().expect("a list of packets");
            let names = items.iter().filter_map(|item| item["leaf"].as_str());
            leaves.extend(names.map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => {
                    path = format!("/storages/{id}/descriptors?limit=1000&cursor={next}");
                }
                None => return leaves,
            }
        }
    }

    /// Name, role and length of every file of a storage.
    pub fn files(&mut self, id: &str) -> Vec<(String, String, u64)> {
        let list = self.done("GET", &format!("/storages/{id}/files"), None);
        let files = list["files"].as_array().expect("a list of files");
        let text = |file: &Value, field: &str| file[field].as_str().unwrap_or_default().to_owned();
        let length = |file: &Value| file["length"].as_u64().expect("a file has a length");
        files
            .iter()
            .map(|file| (text(file, "name"), text(file, "role"), length(file)))
            .collect()
    }

    /// Verifies a storage; returns what is damaged.
    pub fn verify(&mut self, id: &str) -> Vec<Value> {
        let report = self.done("POST", &format!("/storages/{id}/verify"), None);
        report["damage"]
            .as_array()
            .expect("a report lists the damage")
            .clone()
    }

    /// The bytes of a packet as the agent sent them.
    pub fn packet(&mut self, id: &str, number: u64) -> Vec<u8> {
        let response = self.call("GET", &format!("/storages/{id}/packets/{number}"), None);
        assert_eq!(
            response.status,
            200,
            "packet {number}: {}",
            response.brief()
        );
        response.body
    }

    /// Byte ranges (half-open) of a file of a storage, in one request, in the given order.
    pub fn ranges(&mut self, id: &str, file: &str, ranges: &[(u64, u64)]) -> Vec<Part> {
        let list: Vec<String> = ranges
            .iter()
            .map(|(begin, end)| format!("{begin}-{}", end - 1))
            .collect();
        let path = format!("/storage/{id}/{file}");
        let request =
            Request::new("GET", &path).header("range", format!("bytes={}", list.join(",")));
        parts(&self.send(&request).expect("the server answers"))
    }

    /// The value of a metric without labels, or the sum over all its labels; 0 if it is unknown.
    pub fn metric(&mut self, name: &str) -> f64 {
        let response = self
            .send(&Request::new("GET", "/metrics"))
            .expect("the server answers");
        let text = String::from_utf8(response.body).expect("metrics are text");
        let is_of_name = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        };
        let values = text.lines().filter(is_of_name);
        values
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}
