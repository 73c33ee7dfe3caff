//! Three nodes with one object store, of which one may be killed at a point, and what they show.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::control::{At, Control};
use super::super::world::{LIMIT, wait_until};
use crate::agent::{Agent, Receipt};
use crate::http::{Connection, Request, Response};
use crate::object_store::ObjectStore;
use crate::payload::payload;
use crate::server::{Server, Settings};

/// The interval at which conditions are checked.
const POLL: Duration = Duration::from_millis(20);
/// Long enough that the data file of a few packets is an object of its own.
const PACKET_BYTES: usize = 70_000;
/// What seeds the packets.
const STREAM: u64 = 5;
/// The agent and the stream of all packets.
const AGENT: (&str, &str) = ("left", "a");
/// Statuses of a request that is repeated: the node starts, or another one has the storage.
const LATER: [u16; 5] = [307, 404, 409, 429, 503];
/// In the section of the object store, for all nodes.
const CONFIG: &str = "append_interval_ms = 20\nrequest_seconds = 3\n";

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    /// The number of the node.
    pub(super) node: usize,
    pub(super) point: String,
    pub(super) nth: u64,
}

struct Node {
    /// `None` while the script keeps it down.
    server: Option<Server>,
    control: Control,
    settings: Settings,
    folder: std::path::PathBuf,
}

/// What a storage must have.
#[derive(Default)]
struct Expected {
    /// Packets that were acknowledged: all below this.
    acknowledged: u64,
    is_deleted: bool,
}

pub(super) struct Cluster<'a> {
    store: &'a ObjectStore,
    prefix: String,
    nodes: Vec<Node>,
    armed: Option<Armed>,
    /// Whether the armed node was killed.
    was_killed: bool,
    expected: BTreeMap<String, Expected>,
}

impl<'a> Cluster<'a> {
    /// Starts the nodes, and arms the fault. The points of a run without one are noted.
    pub(super) fn begin(
        store: &'a ObjectStore,
        folder: &Path,
        settings: &Settings,
        more: [&'static str; 3],
        armed: Option<Armed>,
    ) -> Self {
        let name = folder.file_name().expect("a run has a folder");
        let prefix = name.to_string_lossy().into_owned();
        let nodes = more.iter().enumerate().map(|(at, more)| {
            let folder = folder.join(format!("node-{at}"));
            let control = Control::new(&folder.join("points"));
            let name = ["one", "two", "three"][at];
            let mut of_store = store.settings(name, &format!("{CONFIG}{more}"));
            // Each run has a part of the store of its own.
            let config = of_store
                .config
                .replace("/cluster\"", &format!("/{prefix}\""));
            of_store.config = format!("{config}\n{}", settings.config);
            of_store.program.clone_from(&settings.program);
            of_store.environment.extend(settings.environment.clone());
            of_store.environment.push(control.environment());
            if armed.is_none() {
                control.note();
            }
            let server = Server::start(&folder, &of_store);
            Node {
                server: Some(server),
                control,
                settings: of_store,
                folder,
            }
        });
        let nodes = nodes.collect();
        let cluster = Self {
            store,
            prefix,
            nodes,
            armed,
            was_killed: false,
            expected: BTreeMap::new(),
        };
        if let Some(Armed { node, point, nth }) = &cluster.armed {
            cluster.nodes[*node].control.arm(point, *nth, At::Kill);
        }
        cluster
    }

    /// How often each node reached each point.
    pub(super) fn take_reached(&self) -> Vec<BTreeMap<String, u64>> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.control.take_reached()).collect()
    }

    /// Starts the node again that was killed at its point. Before, what the others show is checked.
    fn revive(&mut self) {
        let Some(Armed { node, .. }) = self.armed else {
            return;
        };
        let server = self.nodes[node].server.as_mut();
        if self.was_killed || !server.is_some_and(Server::has_exited) {
            return;
        }
        self.was_killed = true;
        self.nodes[node].control.disarm();
        self.check_all();
        let server = self.nodes[node].server.as_mut();
        server.expect("it was there").restart();
        self.check_all();
    }

    /// Checks everything a last time; whether the fault happened.
    pub(super) fn end(mut self) -> bool {
        self.revive();
        self.check_all();
        self.was_killed
    }

    /// Takes a node away, with SIGKILL.
    pub(super) fn take_down(&mut self, node: usize) {
        self.revive();
        self.nodes[node].server = None;
    }

    /// Starts a node again that was taken away.
    pub(super) fn bring_back(&mut self, node: usize) {
        let Node {
            settings, folder, ..
        } = &self.nodes[node];
        let started = Server::try_start(folder, settings);
        let is_armed = self.armed.as_ref().is_some_and(|armed| armed.node == node);
        let server = started.unwrap_or_else(|why| {
            assert!(is_armed && !self.was_killed, "{why}");
            // It was killed while it started.
            self.was_killed = true;
            self.nodes[node].control.disarm();
            Server::start(folder, settings)
        });
        self.nodes[node].server = Some(server);
    }

    /// A request, once; `None` if the node is killed meanwhile, or down.
    fn ask(&self, node: usize, request: &Request<'_>) -> Option<Response> {
        let server = self.nodes[node].server.as_ref()?;
        let mut connection = Connection::open(server.address()).ok()?;
        connection.send(request).ok()
    }

    fn get(&self, node: usize, path: &str) -> Option<Response> {
        self.ask(node, &Request::new("GET", &format!("/api/v1{path}")))
    }

    /// A request, again and again until it has one of the statuses.
    pub(super) fn call(
        &mut self,
        node: usize,
        (method, path): (&str, &str),
        body: &str,
        statuses: &[u16],
    ) -> Response {
        let path = format!("/api/v1{path}");
        let mut request = Request::new(method, &path).body(body.as_bytes());
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if path == "/api/v1/storages" {
            request = request.header("idempotency-key", body.len());
        }
        self.repeat(node, &request, statuses)
    }

    fn repeat(&mut self, node: usize, request: &Request<'_>, statuses: &[u16]) -> Response {
        let begun = Instant::now();
        loop {
            self.revive();
            let asked = self.ask(node, request);
            let status = asked.as_ref().map(|response| response.status);
            if let Some(response) = asked {
                if statuses.contains(&response.status) {
                    return response;
                }
                let brief = response.brief();
                let is_later = LATER.contains(&response.status);
                assert!(is_later && begun.elapsed() < LIMIT, "refused: {brief}");
            }
            assert!(
                begun.elapsed() < LIMIT,
                "no answer of node {node}: {status:?}"
            );
            thread::sleep(POLL);
        }
    }

    /// Makes an open storage with the stream, on a node; returns its id.
    pub(super) fn create(&mut self, node: usize, name: &str) -> String {
        let body = json!({ "name": name, "open": true }).to_string();
        let made = self.call(node, ("POST", "/storages"), &body, &[200, 201]);
        let id = made.json()["id"].as_str().map(str::to_owned);
        let id = id.expect("a storage has an id");
        self.expected.insert(id.clone(), Expected::default());
        self.declare(node);
        id
    }

    /// Declares the stream on a node.
    pub(super) fn declare(&mut self, node: usize) {
        let (agent, stream) = AGENT;
        let path = format!("/agents/{agent}");
        let about = r#"{"name":"left","host":"test"}"#;
        self.call(node, ("PUT", &path), about, &[200, 201]);
        let path = format!("{path}/streams/{stream}");
        let about = r#"{"kind":"raw","codec":"none"}"#;
        self.call(node, ("PUT", &path), about, &[200, 201]);
    }

    /// Pushes so many more packets to a node, one after another, until each is acknowledged.
    pub(super) fn push(&mut self, node: usize, id: &str, count: u64) {
        let (agent, stream) = AGENT;
        let agent = Agent::new(id, agent, stream);
        for _ in 0..count {
            let sequence = self.expected[id].acknowledged;
            let body = payload(STREAM, sequence, PACKET_BYTES);
            let request = Request::new("POST", agent.path())
                .header("content-type", "application/octet-stream")
                .header("tracehold-epoch", 1)
                .header("tracehold-sequence", sequence)
                .body(&body);
            let response = self.repeat(node, &request, &[200]);
            let receipts = Receipt::all(&response.json());
            assert!(receipts.iter().all(|receipt| receipt.durable));
            let expected = self.expected.get_mut(id).expect("it was made before");
            expected.acknowledged = sequence + 1;
        }
    }

    pub(super) fn finalize(&mut self, node: usize, id: &str) {
        let path = format!("/storages/{id}/finalize");
        self.call(node, ("POST", &path), "", &[200]);
    }

    pub(super) fn delete(&mut self, node: usize, id: &str) {
        self.expected.entry(id.to_owned()).or_default().is_deleted = true;
        let path = format!("/storages/{id}");
        self.call(node, ("DELETE", &path), "", &[200, 204, 404]);
    }

    /// Waits until it is so; nodes that are killed meanwhile are started again.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let is_so = || {
            self.revive();
            is_so(self)
        };
        assert!(wait_until_polled(is_so), "{what}");
    }

    /// What a node lists of a storage, without asking for it.
    pub(super) fn listed(&self, node: usize, id: &str) -> Option<Value> {
        let list = self.get(node, "/storages?limit=1000")?;
        let list = (list.status == 200).then(|| list.json())?;
        let mut items = list["items"].as_array()?.iter();
        items.find(|item| item["id"] == *id).cloned()
    }

    /// The state of a storage in the store, as a node sees it.
    pub(super) fn is_in_tier(&self, node: usize, id: &str, state: &str) -> bool {
        let found = self.get(node, &format!("/storages/{id}"));
        let found = found.filter(|found| found.status == 200);
        found.is_some_and(|found| found.json()["tier"]["state"] == state)
    }

    /// The keys of a storage in the store, without what is before them.
    pub(super) fn keys(&self, id: &str) -> Vec<String> {
        let all = self.store.keys().into_iter();
        let before = format!("{}/s/{id}/", self.prefix);
        all.filter_map(|key| key.strip_prefix(&before).map(str::to_owned))
            .collect()
    }

    /// Leaves an object in the store, as an upload that was given up.
    pub(super) fn leave(&self, id: &str, key: &str) {
        let key = format!("{}/s/{id}/{key}", self.prefix);
        self.store.python(&format!(
            "s3.put_object(Bucket=bucket, Key={key:?}, Body=b'left')"
        ));
    }

    /// All nodes show all packets of a finalized storage, once each, and no damage.
    pub(super) fn has_all(&mut self, id: &str) {
        for node in 0..self.nodes.len() {
            self.until("a node does not show the storage", |cluster| {
                let shown = cluster.listed(node, id);
                shown.is_some_and(|shown| shown["state"] == "FINALIZED")
            });
            let end = self.expected[id].acknowledged;
            self.until("a node does not serve all packets", |cluster| {
                cluster.shown(node, id) == Some(end)
            });
            let path = format!("/storages/{id}/verify");
            let report = self.call(node, ("POST", &path), "", &[200]).json();
            assert_eq!(report["damage"], json!([]), "node {node}");
        }
    }

    /// What the nodes list may be no half: a finalized storage has all of its packets.
    fn check_all(&mut self) {
        for node in 0..self.nodes.len() {
            let is_alive = |server: &mut Server| !server.has_exited();
            if !self.nodes[node].server.as_mut().is_some_and(is_alive) {
                continue;
            }
            for (id, expected) in &self.expected {
                let Some(listed) = self.listed(node, id) else {
                    continue;
                };
                // What is being deleted may go while it is read.
                if expected.is_deleted {
                    continue;
                }
                let Some(shown) = self.shown(node, id) else {
                    continue;
                };
                let (state, all) = (&listed["state"], expected.acknowledged);
                assert!(
                    *state != "FINALIZED" || shown == all,
                    "node {node} has {shown} packets of a finalized storage with {all}"
                );
            }
        }
    }

    /// The number of packets of a storage that a node shows, all in order, once and readable;
    /// nothing if it does not answer for it now.
    ///
    /// # Panics
    /// If a packet is damaged, missing or there twice.
    fn shown(&self, node: usize, id: &str) -> Option<u64> {
        let list = self.get(node, &format!("/storages/{id}/descriptors?limit=1000"))?;
        let list = served(&list)?;
        let items = list["items"].as_array().expect("a list");
        for (sequence, item) in (0..).zip(items) {
            assert_eq!(
                (&item["epoch"], &item["sequence"]),
                (&json!(1), &json!(sequence)),
                "node {node} shows other packets"
            );
            let path = format!("/storages/{id}/packets/{}", item["number"]);
            let packet = self.get(node, &path)?;
            if packet.status != 200 {
                served(&packet)?;
            }
            assert!(
                packet.body == payload(STREAM, sequence, PACKET_BYTES),
                "node {node} shows other bytes of packet {sequence}"
            );
        }
        Some(items.len() as u64)
    }
}

/// The document of an answer; nothing if the node may not answer now.
fn served(response: &Response) -> Option<Value> {
    if LATER.contains(&response.status) {
        return None;
    }
    assert_eq!(response.status, 200, "{}", response.brief());
    Some(response.json())
}

fn wait_until_polled(mut is_so: impl FnMut() -> bool) -> bool {
    wait_until(LIMIT, || {
        let is_so = is_so();
        if !is_so {
            thread::sleep(POLL);
        }
        is_so
    })
}
