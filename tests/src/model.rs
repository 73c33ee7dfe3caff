//! Random sequences of operations on storages, recordings and the buffer, compared with a model.
//!
//! The model predicts the content of each storage and the response to each operation; it shares no
//! code with the server. A sequence is determined by its seed.

mod recordings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use self::recordings::{Pushed, Recorded};

use crate::agent::Agent;
use crate::api::{Api, Problem};
use crate::http::{Request, Response};
use crate::payload::{Random, payload};
use crate::server::{Server, Settings};

/// Streams of the only agent, with their codecs.
const STREAMS: [(&str, &str); 3] = [("plain", "none"), ("packed", "zstd"), ("other", "zstd")];
const AGENT: &str = "model";
/// At most this many storages are created.
const STORAGES_MAX: usize = 8;
/// At most this many archives are remembered.
const ARCHIVES_MAX: usize = 4;
/// A server exits within this time, even on a busy machine.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Operations between two complete comparisons.
const COMPARED_EVERY: u64 = 25;

/// The configuration of a model run: data files are full after some packets, and arranged.
pub fn model_settings() -> Settings {
    Settings::with_config(
        "[storage]\nlive_index_packets_max = 8\ndata_file_bytes_max = 65536\n\
         preallocation_bytes_max = 1048576\n",
    )
}

/// A sequence of operations.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// The folder for the server's files.
    pub folder: PathBuf,
    /// The server's settings.
    pub settings: Settings,
    /// The number of operations.
    pub operations: u64,
    /// Determines the sequence.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelReport {
    /// How often each operation succeeded.
    pub done: BTreeMap<&'static str, u64>,
    /// How often each operation was refused, as expected.
    pub refused: BTreeMap<&'static str, u64>,
    /// Full data files that were arranged while their storage was open.
    pub files_arranged: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Created,
    Open,
    Recording,
    Finalized,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Open => "OPEN",
            Self::Recording => "RECORDING",
            Self::Finalized => "FINALIZED",
        }
    }
}

/// The expected state of a storage.
#[derive(Clone, Debug)]
struct Stored {
    name: String,
    state: State,
    labels: BTreeMap<String, Vec<String>>,
    /// The packets of each stream, in order.
    packets: [Vec<Vec<u8>>; STREAMS.len()],
    /// The epoch and sequence that the producer of each stream uses next.
    next: [(u64, u64); STREAMS.len()],
}

struct Run {
    server: Server,
    api: Api,
    random: Random,
    storages: BTreeMap<String, Stored>,
    archives: Vec<(String, Stored, Vec<u8>)>,
    recordings: BTreeMap<String, Recorded>,
    pushed: Pushed,
    /// Makes names and packets unique.
    count: u64,
    report: ModelReport,
}

/// Runs a sequence of operations and compares the results with the model.
///
/// # Panics
/// If the server does something that the model does not allow. The message contains the seed and
/// the operation.
pub fn run_model(plan: &ModelPlan) -> ModelReport {
    let server = Server::start(&plan.folder, &plan.settings);
    let mut api = server.api();
    for (stream, codec) in STREAMS {
        Agent::declare(&mut api, "none", AGENT, stream, codec);
    }
    let mut run = Run {
        server,
        api,
        random: Random::new(plan.seed),
        storages: BTreeMap::new(),
        archives: Vec::new(),
        recordings: BTreeMap::new(),
        pushed: Pushed::default(),
        count: 0,
        report: ModelReport::default(),
    };
    for operation in 1..=plan.operations {
        let begin = format!("seed {}, operation {operation}", plan.seed);
        run.step(&begin);
        if operation % COMPARED_EVERY == 0 {
            run.compare(&begin);
        }
    }
    run.restart();
    run.compare(&format!("seed {}, the end", plan.seed));
    run.report.files_arranged = run.server.files_arranged();
    run.report
}

impl Run {
    fn step(&mut self, place: &str) {
        match self.random.below(100) {
            0..9 => self.create(place),
            9..28 => self.push(place),
            28..32 => self.open(place),
            32..38 => self.finalize(place),
            38..46 => self.label(place),
            46..50 => self.rename(place),
            50..57 => self.copy(place),
            57..63 => self.export(place),
            63..70 => self.import(place),
            70..73 => self.delete(place),
            73..75 => self.restart(),
            75..80 => self.start_recording(place),
            80..83 => self.stop_recording(place),
            83..93 => self.push_through(place),
            93..97 => self.copy_buffer(place),
            _ => self.verify(place),
        }
    }

    fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// One of the storages, or `None` if there are none.
    fn any(&mut self) -> Option<String> {
        let at = self.random.below(self.storages.len().max(1) as u64);
        self.storages.keys().nth(usize::try_from(at).ok()?).cloned()
    }

    fn count(&mut self, operation: &'static str, is_done: bool) {
        let counts = if is_done {
            &mut self.report.done
        } else {
            &mut self.report.refused
        };
        *counts.entry(operation).or_default() += 1;
    }

    /// Sends a request whose outcome the model predicts: success, or refusal with this code.
    fn call(
        &mut self,
        place: &str,
        operation: &'static str,
        (method, path, body): (&str, &str, Option<&Value>),
        expected: Result<(), &str>,
    ) -> Response {
        let response = self.api.call(method, path, body);
        self.check(place, operation, &response, expected);
        response
    }

    fn check(
        &mut self,
        place: &str,
        operation: &'static str,
        response: &Response,
        expected: Result<(), &str>,
    ) {
        let found = match response.status {
            200..300 => Ok(()),
            _ => Err(Problem::of(response).code),
        };
        let found = found.as_ref().map_err(String::as_str).copied();
        assert_eq!(
            found,
            expected,
            "{place}: {operation}: {}",
            response.brief()
        );
        self.count(operation, expected.is_ok());
    }

    fn create(&mut self, place: &str) {
        if self.storages.len() >= STORAGES_MAX {
            return;
        }
        let (name, open) = (
            format!("storage {}", self.fresh()),
            self.random.below(4) > 0,
        );
        let body = json!({ "name": name, "open": open, "labels": { "made": name } });
        let request = ("POST", "/storages", Some(&body));
        let shown = self.call(place, "create", request, Ok(())).json();
        let stored = Stored {
            labels: [("made".to_owned(), vec![name.clone()])].into(),
            name,
            state: if open { State::Open } else { State::Created },
            packets: Default::default(),
            next: [(1, 0); STREAMS.len()],
        };
        let id = shown["id"].as_str().expect("a storage has an id");
        self.storages.insert(id.to_owned(), stored);
    }

    fn push(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let stream = usize::try_from(self.random.below(STREAMS.len() as u64)).unwrap_or(0);
        let length = 1 + self.random.below(20_000);
        let packet = payload(7, self.fresh(), usize::try_from(length).unwrap_or(1));
        let is_repeat = self.random.below(5) == 0;
        let stored = &self.storages[&id];
        let (epoch, next) = stored.next[stream];
        let known = stored.packets[stream]
            .last()
            .filter(|_| is_repeat && next > 0)
            .cloned();
        let mut agent = Agent::new(&id, AGENT, STREAMS[stream].0);
        agent.epoch = epoch;
        let expected = match stored.state {
            State::Open | State::Recording => Ok(()),
            State::Created => Err("storage_not_open"),
            State::Finalized => Err("storage_state_conflict"),
        };
        let (sequence, bytes) = match &known {
            // The same packet again gets its first receipt and has no other effect.
            Some(known) => (next - 1, known),
            None => (next, &packet),
        };
        let waits = self.random.below(4) > 0;
        let response = if waits {
            agent.post(&mut self.api, sequence, bytes)
        } else {
            agent.post_async(&mut self.api, sequence, bytes)
        };
        let response = response.expect("the server answers");
        self.check(place, "push", &response, expected);
        if expected.is_ok() && !waits {
            assert_eq!(response.status, 202, "{place}: {}", response.brief());
            self.wait_until_written(&id);
        }
        if expected.is_ok() {
            let receipt = &response.json()["receipts"][0];
            assert_eq!(
                receipt["duplicate"],
                json!(known.is_some()),
                "{place}: {receipt}"
            );
            if known.is_none()
                && let Some(stored) = self.storages.get_mut(&id)
            {
                stored.packets[stream].push(packet);
                stored.next[stream] = (epoch, next + 1);
            }
        }
    }

    fn open(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let stored = self
            .storages
            .get_mut(&id)
            .expect("the storage was selected from this map");
        let expected = match stored.state {
            State::Created | State::Open | State::Recording => Ok(()),
            State::Finalized => Err("storage_state_conflict"),
        };
        if stored.state == State::Created {
            stored.state = State::Open;
        }
        let path = format!("/storages/{id}/open");
        self.call(place, "open", ("POST", &path, None), expected);
    }

    fn finalize(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let stored = self
            .storages
            .get_mut(&id)
            .expect("the storage was selected from this map");
        stored.state = State::Finalized;
        let path = format!("/storages/{id}/finalize");
        self.call(place, "finalize", ("POST", &path, None), Ok(()));
        self.end_recordings_of(place, &id);
    }

    fn label(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let number = self.random.below(4);
        let path = format!("/storages/{id}/labels");
        let stored = self
            .storages
            .get_mut(&id)
            .expect("the storage was selected from this map");
        let labels = &mut stored.labels;
        let value = number.to_string();
        match self.random.below(4) {
            0 => {
                let values = labels.entry("use_case".to_owned()).or_default();
                if !values.contains(&value) {
                    values.push(value.clone());
                }
                let body = json!({ "type": "use_case", "value": value });
                self.call(place, "label", ("POST", &path, Some(&body)), Ok(()));
            }
            1 => {
                labels.insert("rating".to_owned(), vec![value]);
                let body = json!({ "value": number });
                let path = format!("{path}/rating");
                self.call(place, "label", ("PUT", &path, Some(&body)), Ok(()));
            }
            2 => {
                let expected = labels.remove("rating").map(drop).ok_or("label_not_found");
                let path = format!("{path}/rating");
                self.call(place, "unlabel", ("DELETE", &path, None), expected);
            }
            _ => {
                let body = json!({ "type": "rating", "value": "no number" });
                let wrong = Err("invalid_value");
                self.call(place, "label", ("POST", &path, Some(&body)), wrong);
            }
        }
    }

    fn rename(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let name = format!("renamed {}", self.fresh());
        let body = json!({ "name": name });
        let path = format!("/storages/{id}");
        self.call(place, "rename", ("PATCH", &path, Some(&body)), Ok(()));
        self.storages
            .get_mut(&id)
            .expect("the storage was selected from this map")
            .name = name;
    }

    fn copy(&mut self, place: &str) {
        let (Some(source), Some(target)) = (self.any(), self.any()) else {
            return;
        };
        let is_new = self.random.below(2) == 0 && self.storages.len() < STORAGES_MAX;
        let only = usize::try_from(self.random.below(2 * STREAMS.len() as u64)).unwrap_or(0);
        let finalizes = self.random.below(3) == 0;
        let mut body = json!({ "auto_finalize": finalizes });
        if let Some((stream, _)) = STREAMS.get(only) {
            body["streams"] = json!([stream]);
        }
        let from = self.storages[&source].clone();
        let expected = match self.storages[&target].state {
            _ if is_new => Ok(()),
            _ if source == target => Err("invalid_value"),
            State::Open | State::Recording => Ok(()),
            State::Created => Err("storage_not_open"),
            State::Finalized => Err("storage_state_conflict"),
        };
        let name = format!("copy {}", self.fresh());
        if is_new {
            body["name"] = json!(name);
        } else {
            body["storage"] = json!(target);
        }
        let path = format!("/storages/{source}/copy");
        let response = self.call(place, "copy", ("POST", &path, Some(&body)), expected);
        if expected.is_err() {
            return;
        }
        let shown = response.json();
        let id = shown["storage"]
            .as_str()
            .expect("a copy names its storage")
            .to_owned();
        let to = self.storages.entry(id.clone()).or_insert(Stored {
            name,
            state: State::Open,
            labels: BTreeMap::new(),
            packets: Default::default(),
            next: [(1, 0); STREAMS.len()],
        });
        let mut copied = 0;
        for (stream, (name, _)) in STREAMS.iter().enumerate() {
            let packets = &from.packets[stream];
            if packets.is_empty() || (only < STREAMS.len() && only != stream) {
                continue;
            }
            copied += packets.len();
            to.packets[stream].extend(packets.iter().cloned());
            // The copy started an epoch; a producer that continues the stream needs a later one.
            let agent = Agent::new(&id, AGENT, name);
            let head = self.api.send(&Request::new("HEAD", agent.path()));
            let head = head.expect("the server answers");
            let epoch = head
                .header("tracehold-epoch")
                .and_then(|text| text.parse::<u64>().ok());
            to.next[stream] = (epoch.expect("HEAD returns the epoch") + 1, 0);
        }
        assert_eq!(shown["packets"], json!(copied), "{place}: {shown}");
        if finalizes {
            to.state = State::Finalized;
            self.end_recordings_of(place, &id);
        }
    }

    fn export(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let stored = self.storages[&id].clone();
        let expected = match stored.state {
            State::Finalized => Ok(()),
            State::Open | State::Recording => Err("storage_state_conflict"),
            State::Created => Err("storage_not_open"),
        };
        let path = format!("/storages/{id}/export");
        let response = self.call(place, "export", ("GET", &path, None), expected);
        if expected.is_ok() {
            self.archives.push((id, stored, response.body));
            if self.archives.len() > ARCHIVES_MAX {
                self.archives.remove(0);
            }
        }
    }

    fn import(&mut self, place: &str) {
        let at = self.random.below(self.archives.len().max(1) as u64);
        let is_damaged = self.random.below(4) == 0;
        let at = usize::try_from(at).unwrap_or(0);
        let Some((id, stored, archive)) = self.archives.get(at).cloned() else {
            return;
        };
        // The storage file comes first, so that it is intact wherever the archive is truncated.
        let cut = &archive[..archive.len() - 1];
        let body = if is_damaged { cut } else { &archive[..] };
        let request = Request::new("POST", "/api/v1/storages/import")
            .header("content-type", "application/zip")
            .body(body);
        let response = self
            .server
            .api()
            .send(&request)
            .expect("the server answers");
        let expected = if self.storages.contains_key(&id) {
            Err("storage_exists")
        } else if is_damaged {
            Err("archive_damaged")
        } else {
            Ok(())
        };
        self.check(place, "import", &response, expected);
        if expected.is_ok() {
            self.storages.insert(id, stored);
        }
    }

    fn delete(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        let path = format!("/storages/{id}");
        self.call(place, "delete", ("DELETE", &path, None), Ok(()));
        self.storages.remove(&id);
        self.end_recordings_of(place, &id);
        self.call(
            place,
            "show",
            ("GET", &path, None),
            Err("storage_not_found"),
        );
    }

    /// Stops the server, by a signal or as a crash would, and restarts it.
    fn restart(&mut self) {
        match self.random.below(2) {
            0 => self.server.kill(),
            _ => {
                self.server.terminate();
                let status = self.server.wait(END_LIMIT);
                assert!(status.success(), "the server exited with {status}");
            }
        }
        self.server.restart();
        self.api = self.server.api();
        self.recordings_go_on();
        self.count("restart", true);
    }

    fn verify(&mut self, place: &str) {
        let Some(id) = self.any() else { return };
        assert_eq!(self.api.verify(&id), [] as [Value; 0], "{place}: {id}");
        self.count("verify", true);
    }

    /// Compares everything that the server stores with the model.
    fn compare(&mut self, place: &str) {
        let listed = self.api.done("GET", "/storages?limit=1000", None);
        let listed = listed["items"]
            .as_array()
            .expect("a list has items")
            .clone();
        let ids: Vec<_> = listed
            .iter()
            .filter_map(|storage| storage["id"].as_str())
            .collect();
        let expected: Vec<_> = self.storages.keys().map(String::as_str).collect();
        assert_eq!(ids, expected, "{place}: ids sort by time of creation");
        for (shown, (id, stored)) in listed.iter().zip(&self.storages) {
            let place = format!("{place}: {id}");
            assert_eq!(shown["name"], json!(stored.name), "{place}");
            assert_eq!(shown["state"], json!(stored.state.name()), "{place}");
            let labels = stored
                .labels
                .iter()
                .map(|(name, values)| match values.as_slice() {
                    [value] => (name.clone(), json!(value)),
                    values => (name.clone(), json!(values)),
                });
            assert_eq!(shown["labels"], Value::Object(labels.collect()), "{place}");
            let packets = stored.packets.iter().map(Vec::len).sum::<usize>();
            assert_eq!(shown["packets"], json!(packets), "{place}");
            assert_eq!(stored_packets(&mut self.api, id), stored.packets, "{place}");
        }
        self.compare_recordings(place);
    }
}

/// The packets in a storage, by stream, in order.
fn stored_packets(api: &mut Api, id: &str) -> [Vec<Vec<u8>>; STREAMS.len()] {
    let mut stored_packets: [Vec<Vec<u8>>; STREAMS.len()] = Default::default();
    let mut path = format!("/storages/{id}/descriptors?limit=1000");
    loop {
        let page = api.done("GET", &path, None);
        for item in page["items"].as_array().into_iter().flatten() {
            let stream = STREAMS
                .iter()
                .position(|(name, _)| item["stream"] == json!(name));
            let stream = stream.expect("only known streams are pushed to");
            let number = item["number"].as_u64().expect("a packet has a number");
            stored_packets[stream].push(api.packet(id, number));
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/storages/{id}/descriptors?limit=1000&cursor={next}"),
            None => return stored_packets,
        }
    }
}
