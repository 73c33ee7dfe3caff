//! Recordings, pushes through them, and copies of the buffer, as the model expects them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AGENT, Run, STORAGES_MAX, STREAMS, State, Stored};
use crate::http::{Request, Response};
use crate::payload::payload;

/// At most this many recordings run at a time.
const ACTIVE_MAX: usize = 4;
/// At most this many recordings are remembered.
const LISTED_MAX: usize = 20;
/// A wait that takes longer than this fails.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Scheduled,
    On,
    Off,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::On => "ON",
            Self::Off => "OFF",
        }
    }
}

/// The expected state of a recording.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    storage: String,
    phase: Phase,
    /// Whether its chain writes packets of the model's agent.
    takes: bool,
    finalizes: bool,
}

/// What was pushed without naming a storage.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// The expected content of the buffer: stream and bytes.
    buffer: Vec<(usize, Vec<u8>)>,
    /// The last packet.
    last: Option<Last>,
    /// Whether the server was restarted since then.
    has_restarted: bool,
    epoch: u64,
}

/// The last packet: stream, position and bytes, and the storages that accepted it.
type Last = (usize, (u64, u64), Vec<u8>, Vec<String>);

/// Chains, and whether they write packets of kind `raw` of the model's agent.
fn chain(at: u64) -> (Value, bool) {
    match at {
        0 => (json!([{ "type": "saver" }]), true),
        1 => (
            json!([
                { "type": "saver", "kinds": ["raw"] },
                { "type": "aggregator" },
                { "type": "invocation_cloner" },
            ]),
            true,
        ),
        2 => {
            let inner = json!([{ "type": "saver" }]);
            let of = |agent: &str| json!([{ "type": "agent_filter", "agents": [agent], "processors": inner }]);
            (of(AGENT), true)
        }
        3 => (json!([{ "type": "saver", "kinds": ["otlp"] }]), false),
        _ => {
            // A packet without events has no event that matches.
            let inner = json!([{ "type": "saver" }]);
            let query = json!([{ "type": "query", "query": "dur > 0ns", "processors": inner }]);
            (query, false)
        }
    }
}

impl Run {
    fn is_on_list(&self, storage: &str) -> bool {
        let mut all = self.recordings.values();
        all.any(|each| each.storage == storage && each.phase != Phase::Off)
    }

    fn show_recording(&mut self, id: &str) -> Value {
        self.api.done("GET", &format!("/recordings/{id}"), None)
    }

    /// Waits until a recording is in the expected state.
    fn wait_for(&mut self, place: &str, id: &str, phase: Phase) {
        let begin = Instant::now();
        loop {
            let shown = self.show_recording(id);
            if shown["state"] == phase.name() {
                return;
            }
            assert!(
                begin.elapsed() < LIMIT,
                "{place}: not {}: {shown}",
                phase.name()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until everything that was accepted is durable.
    pub(super) fn wait_until_written(&mut self, storage: &str) {
        let begin = Instant::now();
        loop {
            let status = self.api.status(storage);
            if status["droppable_packets"] == 0 && status["queued_packets"] == 0 {
                assert_eq!(status["dropped_packets"], 0, "{status}");
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{status}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn start_recording(&mut self, place: &str) {
        let active = self.recordings.values();
        let active = active.filter(|each| each.phase != Phase::Off).count();
        let target = self.any();
        let is_new = self.random.below(3) == 0 || target.is_none();
        if active >= ACTIVE_MAX
            || self.recordings.len() >= LISTED_MAX
            || (is_new && self.storages.len() >= STORAGES_MAX)
        {
            return;
        }
        let (processors, takes) = chain(self.random.below(5));
        let (finalizes, when) = (self.random.below(4) == 0, self.random.below(8));
        let mut body = json!({ "processors": processors, "auto_finalize": finalizes });
        match when {
            0 => body["delay_seconds"] = json!(3600),
            1 => body["delay_seconds"] = json!(1),
            2 => body["duration_seconds"] = json!(1),
            3 => body["duration_seconds"] = json!(3600),
            _ => {}
        }
        let name = format!("recording {}", self.fresh());
        let expected = match &target {
            Some(target) if !is_new => {
                body["storage"] = json!(target);
                match self.storages[target].state {
                    // A scheduled recording occupies its storage, although the storage is not
                    // RECORDING yet.
                    State::Created | State::Open if self.is_on_list(target) => Err("storage_taken"),
                    State::Created | State::Open => Ok(()),
                    State::Recording | State::Finalized => Err("storage_state_conflict"),
                }
            }
            _ => {
                body["name"] = json!(name);
                Ok(())
            }
        };
        let request = ("POST", "/recordings", Some(&body));
        let response = self.call(place, "record", request, expected);
        if expected.is_err() {
            return;
        }
        let shown = response.json();
        let text = |field: &str| shown[field].as_str().unwrap_or_default().to_owned();
        let (id, storage) = (text("id"), text("storage"));
        let stored = self.storages.entry(storage.clone()).or_insert(Stored {
            name,
            state: State::Created,
            labels: Default::default(),
            packets: Default::default(),
            next: [(1, 0); STREAMS.len()],
        });
        let mut recorded = Recorded {
            storage,
            phase: Phase::On,
            takes,
            finalizes,
        };
        match when {
            0 => recorded.phase = Phase::Scheduled,
            // Its duration ends before the next operation.
            2 => {
                recorded.phase = Phase::Off;
                stored.state = if finalizes {
                    State::Finalized
                } else {
                    State::Open
                };
            }
            _ => stored.state = State::Recording,
        }
        let phase = recorded.phase;
        self.recordings.insert(id.clone(), recorded);
        self.wait_for(place, &id, phase);
    }

    pub(super) fn stop_recording(&mut self, place: &str) {
        let at = self.random.below(self.recordings.len().max(1) as u64);
        let at = usize::try_from(at).unwrap_or(0);
        let Some(id) = self.recordings.keys().nth(at).cloned() else {
            return;
        };
        let path = format!("/recordings/{id}");
        let request = ("DELETE", path.as_str(), None);
        let shown = self.call(place, "stop", request, Ok(())).json();
        assert_eq!(shown["state"], "OFF", "{place}: {shown}");
        let recorded = self
            .recordings
            .get_mut(&id)
            .expect("the recording was selected from this list");
        match std::mem::replace(&mut recorded.phase, Phase::Off) {
            Phase::On => {
                let state = if recorded.finalizes {
                    State::Finalized
                } else {
                    State::Open
                };
                if let Some(stored) = self.storages.get_mut(&recorded.storage) {
                    stored.state = state;
                }
            }
            Phase::Scheduled => {}
            Phase::Off => {
                self.recordings.remove(&id);
                let gone = Err("recording_not_found");
                self.call(place, "show recording", ("GET", &path, None), gone);
            }
        }
    }

    /// The storage accepts no more packets: recordings that write to it stop.
    pub(super) fn end_recordings_of(&mut self, place: &str, storage: &str) {
        let of_it =
            |(_, each): &(&String, &Recorded)| each.storage == storage && each.phase == Phase::On;
        let ending: Vec<_> = self.recordings.iter().filter(of_it).collect();
        let ending: Vec<_> = ending.into_iter().map(|(id, _)| id.clone()).collect();
        for id in ending {
            self.wait_for(place, &id, Phase::Off);
            let shown = self.show_recording(&id);
            assert!(shown["reason"].is_string(), "{place}: {shown}");
            if let Some(recorded) = self.recordings.get_mut(&id) {
                recorded.phase = Phase::Off;
            }
        }
    }

    /// After a restart, recordings that were running continue, and the buffer is empty.
    pub(super) fn recordings_go_on(&mut self) {
        self.pushed.buffer.clear();
        self.pushed.has_restarted = true;
        let on: Vec<_> = (self.recordings.iter())
            .filter(|(_, each)| each.phase == Phase::On)
            .map(|(id, each)| (id.clone(), each.storage.clone()))
            .collect();
        for (id, storage) in on {
            self.wait_for("after a restart", &id, Phase::On);
            let begin = Instant::now();
            while self.api.state(&storage) != "RECORDING" {
                assert!(begin.elapsed() < LIMIT, "no recording writes to {storage}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn send_through(&mut self, stream: usize, at: (u64, u64), bytes: &[u8]) -> Response {
        let path = format!(
            "/api/v1/agents/{AGENT}/streams/{}/packets",
            STREAMS[stream].0
        );
        let request = Request::new("POST", &path)
            .header("content-type", "application/octet-stream")
            .header("tracehold-epoch", at.0)
            .header("tracehold-sequence", at.1)
            .body(bytes);
        self.api.send(&request).expect("the server answers")
    }

    /// Storages whose receipts say durable, sorted. All receipts agree on whether the packet is a
    /// duplicate.
    fn durable(place: &str, response: &Response, is_repeat: bool) -> Vec<String> {
        let document = response.json();
        let receipts = document["receipts"]
            .as_array()
            .expect("a push has receipts");
        let durable = receipts.iter().filter(|each| each["durable"] == true);
        let mut storages: Vec<_> = durable
            .map(|each| {
                if is_repeat {
                    assert_eq!(each["duplicate"], true, "{place}: {each}");
                }
                each["storage"].as_str().unwrap_or_default().to_owned()
            })
            .collect();
        storages.sort();
        storages
    }

    fn accepting_storages(&self) -> Vec<String> {
        let on = self.recordings.values();
        let on = on.filter(|each| each.phase == Phase::On && each.takes);
        let mut storages: Vec<_> = on.map(|each| each.storage.clone()).collect();
        storages.sort();
        storages
    }

    pub(super) fn push_through(&mut self, place: &str) {
        if self.random.below(4) == 0 {
            return self.repeat_through(place);
        }
        let stream = usize::try_from(self.random.below(STREAMS.len() as u64)).unwrap_or(0);
        // An epoch that is new in every storage, including those where copies started epochs.
        let epochs = self.storages.values().flat_map(|stored| stored.next);
        let epochs = epochs.map(|(epoch, _)| epoch);
        let epoch = epochs.chain([self.pushed.epoch]).max().unwrap_or(0) + 1;
        self.pushed.epoch = epoch;
        for sequence in 0..1 + self.random.below(3) {
            let length = 1 + self.random.below(10_000);
            let bytes = payload(8, self.fresh(), usize::try_from(length).unwrap_or(1));
            let response = self.send_through(stream, (epoch, sequence), &bytes);
            self.check(place, "push through", &response, Ok(()));
            let taking = self.accepting_storages();
            assert_eq!(Self::durable(place, &response, false), taking, "{place}");
            for id in &taking {
                let stored = self.storages.get_mut(id).expect("a recording writes to it");
                stored.packets[stream].push(bytes.clone());
                stored.next[stream] = (epoch, sequence + 1);
            }
            self.pushed.buffer.push((stream, bytes.clone()));
            self.pushed.last = Some((stream, (epoch, sequence), bytes, taking));
            self.pushed.has_restarted = false;
        }
        let gap = self.send_through(stream, (epoch, 10), b"too early");
        self.check(place, "push through", &gap, Err("sequence_gap"));
    }

    /// The last packet is sent again. A storage that has it does not store it twice; after a
    /// restart, a recording that did not receive it accepts it.
    fn repeat_through(&mut self, place: &str) {
        let Some((stream, at, bytes, had_it)) = self.pushed.last.clone() else {
            return;
        };
        let on = self
            .recordings
            .values()
            .filter(|each| each.phase == Phase::On);
        let on: Vec<_> = on.map(|each| (each.storage.clone(), each.takes)).collect();
        let response = self.send_through(stream, at, &bytes);
        self.check(place, "repeat through", &response, Ok(()));
        // A stream without packets is past nothing, although a copy may have begun an epoch.
        let is_new = |stored: &Stored| {
            let is_before = stored.packets[stream].is_empty() || stored.next[stream] <= at;
            self.pushed.has_restarted && is_before
        };
        let mut durable = Vec::new();
        let mut taking = had_it.clone();
        for (id, takes) in on {
            let Some(stored) = self.storages.get_mut(&id) else {
                continue;
            };
            if is_new(stored) && takes {
                stored.packets[stream].push(bytes.clone());
                stored.next[stream] = (at.0, at.1 + 1);
                taking.push(id.clone());
                durable.push(id);
            } else if had_it.contains(&id) {
                durable.push(id);
            }
        }
        durable.sort();
        assert_eq!(Self::durable(place, &response, false), durable, "{place}");
        if self.pushed.has_restarted {
            self.pushed.buffer.push((stream, bytes.clone()));
        }
        self.pushed.has_restarted = false;
        self.pushed.last = Some((stream, at, bytes, taking));
    }

    pub(super) fn copy_buffer(&mut self, place: &str) {
        if self.storages.len() >= STORAGES_MAX {
            return;
        }
        let name = format!("buffered {}", self.fresh());
        let finalizes = self.random.below(2) == 0;
        let mut body = json!({ "name": name, "auto_finalize": finalizes });
        // The selected agents, and the chain: all packets or none.
        let (agents, takes) = match self.random.below(4) {
            0 => (json!(["nobody"]), false),
            1 => (json!([AGENT]), true),
            _ => (json!([]), true),
        };
        body["agents"] = agents;
        let (processors, writes) = chain(self.random.below(5));
        body["processors"] = processors;
        let request = ("POST", "/buffer/copy", Some(&body));
        let shown = self.call(place, "copy buffer", request, Ok(())).json();
        let chosen = if takes { self.pushed.buffer.len() } else { 0 };
        let written = if writes { chosen } else { 0 };
        assert_eq!(shown["chosen_packets"], json!(chosen), "{place}: {shown}");
        assert_eq!(shown["written_packets"], json!(written), "{place}: {shown}");
        let mut stored = Stored {
            name,
            state: if finalizes {
                State::Finalized
            } else {
                State::Open
            },
            labels: Default::default(),
            packets: Default::default(),
            // After every position in the buffer.
            next: [(self.pushed.epoch + 1, 0); STREAMS.len()],
        };
        if written > 0 {
            for (stream, bytes) in &self.pushed.buffer {
                stored.packets[*stream].push(bytes.clone());
            }
        }
        let id = shown["storage"].as_str().unwrap_or_default().to_owned();
        self.storages.insert(id, stored);
    }

    /// Compares the list of recordings with the model.
    pub(super) fn compare_recordings(&mut self, place: &str) {
        let listed = self.api.done("GET", "/recordings?limit=1000", None);
        let items = listed["items"].as_array().expect("a list has items");
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        let found: Vec<_> = items
            .iter()
            .map(|item| (text(item, "id"), text(item, "storage"), text(item, "state")))
            .collect();
        let wanted: Vec<_> = (self.recordings.iter())
            .map(|(id, each)| {
                (
                    id.clone(),
                    each.storage.clone(),
                    each.phase.name().to_owned(),
                )
            })
            .collect();
        assert_eq!(found, wanted, "{place}");
        let buffer = self.api.done("GET", "/buffer", None);
        assert_eq!(
            buffer["packets"],
            json!(self.pushed.buffer.len()),
            "{place}"
        );
    }
}
