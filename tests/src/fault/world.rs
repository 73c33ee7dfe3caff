//! A server with the content of a scenario, and the requests of its steps.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::IN_BACKGROUND;
use super::control::{At, Control};
use super::scenario::{Scenario, Step, What};
use super::view::View;
use crate::agent::{Receipt, batch_header};
use crate::api::Api;
use crate::http::{Connection, Request, Response};
use crate::payload::payload;
use crate::server::{Server, Settings};

/// A wait that takes longer than this fails.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Recordings resume within this time after a start.
const RESUMED: Duration = Duration::from_secs(20);
/// A point that is reached after the answer is reached within this time.
const AFTER_ANSWER: Duration = Duration::from_secs(2);
/// The interval at which conditions are checked.
const POLL: Duration = Duration::from_millis(1);
/// Batches of a log begin at multiples of this.
const BLOCK_BYTES: usize = 4096;
/// The epoch of all packets.
const EPOCH: u64 = 1;
/// Bytes of a packet, at most.
const PACKET_BYTES: u64 = 9_000;

/// How much of a request a client sends before it hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Head,
    HalfOfBody,
    All,
}

/// The outcome of a step with a fault.
#[derive(Debug)]
pub(super) struct Faulted {
    /// Whether the fault happened.
    pub(super) is_reached: bool,
    /// The answer, if there was one.
    pub(super) answer: Option<Response>,
}

/// A request, ready to be sent.
struct Prepared {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Prepared {
    fn request(&self) -> Request<'_> {
        let request = Request::new(self.method, &self.path).body(&self.body);
        let headers = self.headers.iter();
        headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }
}

pub(super) struct World {
    pub(super) server: Server,
    pub(super) control: Control,
    archives: BTreeMap<&'static str, Vec<u8>>,
    /// The first token that a step created.
    token: Option<String>,
}

impl World {
    /// Starts a server and carries out the setup.
    pub(super) fn begin(folder: &Path, settings: &Settings, scenario: &Scenario) -> Self {
        let control = Control::new(&folder.join("points"));
        let mut settings = settings.clone();
        settings.config = format!("{}\n{}", scenario.config, settings.config);
        settings.environment.push(control.environment());
        let mut world = Self {
            server: Server::start(folder, &settings),
            control,
            archives: BTreeMap::new(),
            token: None,
        };
        world.control.note();
        for step in scenario.setup {
            world.perform(step);
        }
        world.settle(scenario);
        world.control.disarm();
        world.control.take_reached();
        for step in scenario.steps {
            if let What::Import { name, is_damaged } = step.what {
                world.take_out(name, is_damaged);
            }
        }
        world
    }

    /// Waits for work that no request waits for, if the scenario has any. Points must be noted.
    pub(super) fn settle(&self, scenario: &Scenario) {
        if scenario.has_work_in_background() {
            self.control.wait_until_quiet();
        }
    }

    /// Exports a storage, and deletes it or damages its storage file.
    fn take_out(&mut self, name: &'static str, is_damaged: bool) {
        let mut api = self.api();
        let id = id_of(&mut api, name);
        let archive = api.call("GET", &format!("/storages/{id}/export"), None);
        assert_eq!(archive.status, 200, "{}", archive.brief());
        self.archives.insert(name, archive.body);
        if !is_damaged {
            api.done("DELETE", &format!("/storages/{id}"), None);
            return;
        }
        self.server.kill();
        let folder = self.server.data().join("storages").join(&id);
        let names = fs::read_dir(&folder).expect("a storage has a folder");
        let paths = names.map(|name| name.expect("a folder can be listed").path());
        // A finalized storage has its storage file twice.
        let paths: Vec<_> = paths.filter(|path| is_storage_file(path)).collect();
        assert_eq!(paths.len(), 2, "the storage file and its copy");
        for path in paths {
            let mut bytes = fs::read(&path).expect("a storage file can be read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).expect("a storage file can be written");
        }
        self.server.restart();
    }

    /// Damages the first packet of the second batch of a storage.
    fn damage(&mut self, name: &str, is_complete: bool) {
        let id = id_of(&mut self.api(), name);
        if is_complete {
            self.stop();
        } else {
            self.server.kill();
        }
        let folder = self.server.data().join("storages").join(&id);
        let path = folder.join("0000000000000000.itdata");
        let mut bytes = fs::read(&path).expect("a storage with packets has a data file");
        let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
        let mut batches = blocks.filter(|(_, block)| block.starts_with(b"THBA"));
        let (block, _) = batches.nth(1).expect("there are several batches");
        // After the headers of batch, segment and frame.
        bytes[block * BLOCK_BYTES + 64 + 40 + 88] ^= 1;
        fs::write(&path, bytes).expect("a data file can be written");
        self.server.restart();
    }

    pub(super) fn api(&self) -> Api {
        self.server.api().with_token(self.token.clone())
    }

    pub(super) fn view(&self) -> View {
        View::of(&mut self.api())
    }

    /// Waits until the server shows one of these; what it shows in the end.
    pub(super) fn view_of(&self, is_expected: impl Fn(&View) -> bool) -> View {
        let begin = Instant::now();
        loop {
            let view = self.view();
            // Recordings resume after the server accepts requests.
            if is_expected(&view) || begin.elapsed() > RESUMED {
                return view;
            }
            thread::sleep(POLL * 10);
        }
    }

    /// Performs a step without a fault; it must succeed.
    pub(super) fn perform(&mut self, step: &Step) {
        match step.what {
            What::Restart => self.stop_and_start(),
            What::Crash => self.crash(),
            What::Damage { name, is_complete } => self.damage(name, is_complete),
            _ => {
                let response = self.send(step);
                check_success(step, &response);
                if let What::Call {
                    path: "/tokens", ..
                } = step.what
                {
                    let made = response.json()["token"].as_str().map(str::to_owned);
                    self.token = self.token.take().or(made);
                }
            }
        }
    }

    /// Performs a step that may be refused.
    pub(super) fn try_perform(&mut self, step: &Step) -> Response {
        self.send(step)
    }

    /// Performs a step, again and again until it succeeds.
    pub(super) fn perform_soon(&mut self, step: &Step) {
        let begin = Instant::now();
        loop {
            let response = self.send(step);
            if (200..300).contains(&response.status) || step.again.contains(&response.status) {
                return;
            }
            let brief = response.brief();
            assert!(begin.elapsed() < LIMIT, "it does not resume: {brief}");
            thread::sleep(POLL * 10);
        }
    }

    /// Performs a step again that happened before.
    pub(super) fn perform_again(&mut self, step: &Step) {
        let response = self.send(step);
        if !step.again.contains(&response.status) {
            check_success(step, &response);
        }
    }

    fn send(&self, step: &Step) -> Response {
        let prepared = self.prepare(step);
        let sent = self.server.connect().send(&prepared.request());
        sent.expect("a server without a fault answers")
    }

    pub(super) fn stop_and_start(&mut self) {
        self.stop();
        self.server.restart();
    }

    fn stop(&mut self) {
        self.server.terminate();
        let status = self.server.wait(LIMIT);
        assert!(status.success(), "the server ended with {status}");
    }

    pub(super) fn crash(&mut self) {
        self.server.kill();
        self.server.restart();
    }

    /// Performs a step during which the process is killed at a point, and starts the server again.
    pub(super) fn perform_and_kill(&mut self, step: &Step, point: &str, nth: u64) -> Faulted {
        let answer = match step.what {
            What::Restart | What::Crash => {
                let is_reached = self.restart_and_kill(step, point, nth);
                return Faulted {
                    is_reached,
                    answer: None,
                };
            }
            _ => {
                let prepared = self.prepare(step);
                let mut connection = self.server.connect();
                self.control.arm(point, nth, At::Kill);
                connection.send(&prepared.request()).ok()
            }
        };
        let is_reached = wait_until(patience(point), || self.server.has_exited());
        self.control.disarm();
        if !is_reached {
            self.server.kill();
        }
        self.server.restart();
        Faulted { is_reached, answer }
    }

    fn restart_and_kill(&mut self, step: &Step, point: &str, nth: u64) -> bool {
        self.control.arm(point, nth, At::Kill);
        let mut is_reached = false;
        if matches!(step.what, What::Restart) {
            self.server.terminate();
            is_reached = !self.server.wait(LIMIT).success();
        } else {
            self.server.kill();
        }
        if !is_reached {
            is_reached = !self.server.try_restart();
        }
        self.control.disarm();
        if !self.server.has_exited() {
            self.server.kill();
        }
        self.server.restart();
        is_reached
    }

    /// Performs a step; the client hangs up while the server is at a point.
    pub(super) fn perform_and_hang_up(&mut self, step: &Step, point: &str, nth: u64) -> Faulted {
        let prepared = self.prepare(step);
        let mut connection = self.server.connect();
        let closer = connection.closer().expect("a socket can be cloned");
        self.control.arm(point, nth, At::Hold);
        let (is_reached, answer) = thread::scope(|scope| {
            let answer = scope.spawn(|| connection.send(&prepared.request()).ok());
            wait_until(LIMIT, || self.control.is_held() || answer.is_finished());
            let is_reached = wait_until(patience(point), || self.control.is_held());
            // The server may have closed the connection already.
            drop(closer.shutdown(Shutdown::Both));
            self.control.release();
            (
                is_reached,
                answer.join().expect("the client does not panic"),
            )
        });
        self.control.disarm();
        Faulted { is_reached, answer }
    }

    /// Sends a part of the request of a step, and hangs up.
    pub(super) fn perform_in_part(&mut self, step: &Step, sent: Sent) -> Faulted {
        let prepared = self.prepare(step);
        let written = send_part(self.server.address(), &prepared, sent);
        written.expect("the server reads a request");
        Faulted {
            is_reached: true,
            answer: None,
        }
    }

    /// Whether the request of a step has a body.
    pub(super) fn has_body(step: &Step) -> bool {
        match step.what {
            What::Call { body, .. } => !body.is_empty(),
            What::Restart | What::Crash => false,
            _ => true,
        }
    }

    fn prepare(&self, step: &Step) -> Prepared {
        let mut headers = Vec::new();
        let mut api = self.api();
        if let Some(token) = &self.token {
            headers.push(("authorization", format!("Bearer {token}")));
        }
        let (method, path, body) = match &step.what {
            What::Call { method, path, body } => {
                let kind = if body.starts_with('{') {
                    "application/json"
                } else {
                    "application/octet-stream"
                };
                if !body.is_empty() {
                    headers.push(("content-type", kind.to_owned()));
                }
                let (path, body) = (filled(&mut api, path), filled(&mut api, body));
                (*method, path, body.into_bytes())
            }
            What::Create { name } => {
                headers.push(("content-type", "application/json".to_owned()));
                headers.push(("idempotency-key", format!("key of {name}")));
                let body = serde_json::json!({ "name": name, "open": true }).to_string();
                ("POST", "/storages".to_owned(), body.into_bytes())
            }
            What::Import { name, .. } => {
                headers.push(("content-type", "application/zip".to_owned()));
                (
                    "POST",
                    "/storages/import".to_owned(),
                    self.archives[name].clone(),
                )
            }
            What::Push {
                storage,
                agent,
                stream,
                first,
                count,
            } => {
                let kind = if *count == 1 {
                    headers.push(("tracehold-epoch", EPOCH.to_string()));
                    headers.push(("tracehold-sequence", first.to_string()));
                    "application/octet-stream"
                } else {
                    "application/vnd.tracehold.packets"
                };
                headers.push(("content-type", kind.to_owned()));
                let target = storage.map(|name| {
                    let id = id_of(&mut api, name);
                    format!("/storages/{id}")
                });
                let path = format!(
                    "{}/agents/{agent}/streams/{stream}/packets",
                    target.unwrap_or_default()
                );
                ("POST", path, batch(agent, stream, *first, *count))
            }
            What::Restart | What::Crash | What::Damage { .. } => {
                panic!("a restart has no request")
            }
        };
        Prepared {
            method,
            path: format!("/api/v1{path}"),
            headers,
            body,
        }
    }
}

/// How long after the answer a point may be reached.
fn patience(point: &str) -> Duration {
    if point.starts_with(IN_BACKGROUND) {
        return AFTER_ANSWER * 5;
    }
    AFTER_ANSWER
}

fn is_storage_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains(".storage")
}

fn send_part(address: SocketAddr, prepared: &Prepared, sent: Sent) -> io::Result<()> {
    let connection = Connection::open(address)?;
    let mut stream = connection.closer()?;
    stream.write_all(&prepared.request().head())?;
    let body = match sent {
        Sent::Head => 0,
        Sent::HalfOfBody => prepared.body.len() / 2,
        Sent::All => prepared.body.len(),
    };
    // A refusal may come before the end of the body.
    drop(stream.write_all(&prepared.body[..body]));
    drop(stream.shutdown(Shutdown::Both));
    Ok(())
}

/// The packets of a stream as one body; a single one without a header.
fn batch(agent: &str, stream: &str, first: u64, count: u64) -> Vec<u8> {
    let seed = agent.len() as u64 * 1000 + stream.bytes().map(u64::from).sum::<u64>();
    let mut body = Vec::new();
    for sequence in first..first + count {
        let length = 1 + (seed + sequence * 613) % PACKET_BYTES;
        let length = usize::try_from(length).expect("packets are small");
        let packet = payload(seed, sequence, length);
        if count > 1 {
            body.extend_from_slice(&batch_header(&packet, EPOCH, sequence));
        }
        body.extend_from_slice(&packet);
    }
    body
}

/// The text with the ids that its names stand for.
fn filled(api: &mut Api, text: &str) -> String {
    let mut filled = text.to_owned();
    if filled.contains("{recording}") {
        let list = api.done("GET", "/recordings", None);
        let recordings = list["items"].as_array().expect("a list");
        let id = recordings.last().and_then(|last| last["id"].as_str());
        filled = filled.replace(
            "{recording}",
            id.unwrap_or("00000000-0000-0000-0000-000000000000"),
        );
    }
    if filled.contains("{token}") {
        let list = api.done("GET", "/tokens", None);
        let tokens = list["items"].as_array().expect("a list");
        let second = tokens.iter().find(|token| token["name"] == "second");
        let id = second.and_then(|token| token["id"].as_str());
        filled = filled.replace("{token}", id.unwrap_or("none"));
    }
    for (name, id) in ids(api) {
        filled = filled.replace(&format!("{{{name}}}"), &id);
    }
    filled
}

fn ids(api: &mut Api) -> Vec<(String, String)> {
    let list = api.done("GET", "/storages?limit=1000", None);
    let storages = list["items"].as_array().expect("a list").iter();
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    storages
        .map(|storage| (text(storage, "name"), text(storage, "id")))
        .collect()
}

fn id_of(api: &mut Api, name: &str) -> String {
    let found = ids(api).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no storage {name}")).1
}

/// Panics unless the response says that the step happened.
pub(super) fn check_success(step: &Step, response: &Response) {
    let brief = response.brief();
    assert!((200..300).contains(&response.status), "{brief}");
    if let What::Push { first, count, .. } = step.what {
        let receipts = Receipt::all(&response.json());
        let sequences: Vec<_> = receipts.iter().map(|receipt| receipt.sequence).collect();
        let expected: Vec<_> = (first..first + count).collect();
        assert_eq!(sequences, expected, "the receipts of {brief}");
        assert!(receipts.iter().all(|receipt| receipt.durable), "{brief}");
    }
}

/// Whether the condition became true in time.
pub(super) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > limit {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}
