//! What a client sees of a server, without what differs between two runs of the same requests.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::http::Response;

/// The content of a packet that is damaged.
const UNREADABLE: &str = "cannot be read";

/// How often a view is begun at most.
const VIEWS_MAX: usize = 20;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// What is answered for a storage or a packet that was listed, and is gone or out of reach now.
const CHANGING: [&str; 3] = ["storage_not_found", "packet_missing", "storage_recovering"];

/// A storage of the list is there no more.
struct Deleted;

/// Everything that requests can change.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// By path: a storage, a label type, an agent, a recording.
    things: BTreeMap<String, Value>,
    /// The packets of each stream of each storage, by number: position and bytes.
    packets: BTreeMap<String, Vec<String>>,
    /// Their numbers in the storage. They differ between runs, because packets that are refused
    /// after they were numbered leave gaps.
    numbers: BTreeMap<String, Vec<u64>>,
}

/// How the two ends of a step may be mixed in what a fault leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// All of the step or nothing of it.
    Nothing,
    /// A prefix of the packets of each stream.
    Prefixes,
    /// Each thing is as before or as after: the step changes several of them one by one.
    Things,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.things == other.things && self.packets == other.packets
    }
}

impl View {
    /// Whether both are equal, and the packets have the same numbers.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self == other && self.numbers == other.numbers
    }

    /// The packets that are listed and cannot be read.
    pub(super) fn unreadable(&self) -> Vec<&String> {
        let packets = self.packets.values().flatten();
        packets
            .filter(|packet| packet.contains(UNREADABLE))
            .collect()
    }

    /// What the server shows.
    ///
    /// # Panics
    /// If it shows a storage that is damaged or miscounted.
    pub(super) fn of(api: &mut Api) -> Self {
        // A deletion or a repair whose client hung up may end while its storage is read.
        let mut views = (0..VIEWS_MAX).filter_map(|_| {
            let view = Self::at_once(api).ok();
            if view.is_none() {
                thread::sleep(PAUSE);
            }
            view
        });
        views.next().expect("the lists have only what exists")
    }

    fn at_once(api: &mut Api) -> Result<Self, Deleted> {
        let mut view = Self::default();
        let storages = pages(api, "/storages")?;
        let names: BTreeMap<String, String> = storages
            .iter()
            .map(|storage| (text(storage, "id"), text(storage, "name")))
            .collect();
        for storage in &storages {
            if storage["state"] == "FINALIZING" {
                // The start continues it; this waits for the end.
                let id = text(storage, "id");
                api.call("POST", &format!("/storages/{id}/finalize"), None);
                let ended = read(api, &format!("/storages/{id}"))?;
                view.add_storage(api, &ended)?;
            } else {
                view.add_storage(api, storage)?;
            }
        }
        let types = api.done("GET", "/label-types", None);
        for label_type in types["items"].as_array().expect("a list") {
            if label_type["declared"] == true && label_type["predefined"] == false {
                let path = format!("label type {}", text(label_type, "name"));
                // The numbers of storages follow from the labels of the storages.
                let values = label_type["values"].as_array().expect("a list").iter();
                let kept = values.filter(|value| value["kept"] == true);
                let kept: Vec<_> = kept.map(|value| &value["value"]).collect();
                let (of, several) = (&label_type["value_type"], &label_type["several"]);
                view.things.insert(path, json!([of, several, kept]));
            }
        }
        for mut agent in pages(api, "/agents")? {
            // It is known some seconds later.
            agent["stored_bytes"].take();
            // It is counted since the start.
            for stream in agent["streams"].as_array_mut().into_iter().flatten() {
                stream["activity"].take();
            }
            view.things
                .insert(format!("agent {}", text(&agent, "id")), agent);
        }
        for token in pages(api, "/tokens")? {
            let is_revoked = !token["revoked"].is_null();
            let path = format!("token {}", text(&token, "name"));
            view.things.insert(path, json!([token["role"], is_revoked]));
        }
        for recording in pages(api, "/recordings")? {
            let storage = names.get(&text(&recording, "storage"));
            let path = format!(
                "recording into {}",
                storage.map_or("nothing", String::as_str)
            );
            let state = recording["state"].clone();
            let is_new = view.things.insert(path.clone(), state).is_none();
            assert!(is_new, "a second {path}");
        }
        Ok(view)
    }

    fn add_storage(&mut self, api: &mut Api, storage: &Value) -> Result<(), Deleted> {
        let (id, name) = (text(storage, "id"), text(storage, "name"));
        let shown: Map<String, Value> = ["state", "description", "labels"]
            .into_iter()
            .map(|field| (field.to_owned(), storage[field].clone()))
            .collect();
        let path = format!("storage {name}");
        let is_new = self.things.insert(path.clone(), shown.into()).is_none();
        assert!(is_new, "a second {path}");
        // Nothing can be read of a storage whose storage file is damaged, not even its name.
        if storage["state"] == "CREATED" || name.is_empty() {
            return Ok(());
        }
        let status = read(api, &format!("/storages/{id}/status"))?;
        let missing = status["missing_packets"].clone();
        self.things.insert(format!("missing in {name}"), missing);
        // While packets arrive, the list is as long as one of the counts around it.
        let first_count = packet_count(api, &id)?;
        let packets = pages(api, &format!("/storages/{id}/descriptors?provenance=true"))?;
        let mut numbers = Vec::new();
        for packet in &packets {
            let number = packet["number"].as_u64().expect("a packet has a number");
            numbers.push(number);
            let path = format!("/storages/{id}/packets/{number}");
            let content = packet_content(api, &path)?;
            let stream = format!(
                "{name} {} {}",
                text(packet, "agent"),
                text(packet, "stream")
            );
            let position = json!([packet["epoch"], packet["sequence"]]);
            let mut entry = format!("{position} {content}");
            if !packet["provenance"].is_null() {
                entry.push_str(&packet["provenance"].to_string());
            }
            self.packets.entry(stream.clone()).or_default().push(entry);
            self.numbers.entry(stream).or_default().push(number);
        }
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "{path}: packets are listed twice or in disorder: {numbers:?}"
        );
        let counts = first_count..=packet_count(api, &id)?;
        let found = numbers.len() as u64;
        assert!(
            counts.contains(&found),
            "{path}: {found} packets, counted {counts:?}"
        );
        if storage["state"] == "FINALIZED" {
            let report = answer(api, "POST", &format!("/storages/{id}/verify"))?.json();
            let damage = report["damage"].as_array().expect("a list of damage");
            assert!(damage.is_empty(), "{path}: {damage:?}");
        }
        Ok(())
    }

    /// Whether this is what a fault between two views may leave.
    pub(super) fn is_between(&self, before: &Self, after: &Self, between: Between) -> bool {
        self == before
            || self == after
            || match between {
                Between::Nothing => false,
                Between::Prefixes => self.has_prefixes_between(before, after),
                Between::Things => self.is_mixed(before, after),
            }
    }

    fn has_prefixes_between(&self, before: &Self, after: &Self) -> bool {
        let none = Vec::new();
        let of = |view: &Self, stream: &String| view.packets.get(stream).unwrap_or(&none).clone();
        let mut streams = self.packets.keys().chain(after.packets.keys());
        (self.things == before.things || self.things == after.things)
            && streams.all(|stream| {
                let found = of(self, stream);
                found.starts_with(&of(before, stream)) && of(after, stream).starts_with(&found)
            })
    }

    fn is_mixed(&self, before: &Self, after: &Self) -> bool {
        let mut all = self.things.keys();
        let mut all_before = before.things.keys();
        let is_known = |path: &String| {
            let found = self.things.get(path);
            found == before.things.get(path) || found == after.things.get(path)
        };
        all.all(is_known) && all_before.all(is_known) && {
            let streams = self.packets.keys().chain(before.packets.keys());
            let mut streams = streams.chain(after.packets.keys());
            streams.all(|stream| {
                let found = self.packets.get(stream);
                found == before.packets.get(stream) || found == after.packets.get(stream)
            })
        }
    }

    /// What differs, for a message.
    pub(super) fn difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        for path in self.things.keys().chain(other.things.keys()) {
            let (one, two) = (self.things.get(path), other.things.get(path));
            if one != two {
                lines.push(format!("{path}: {one:?} and {two:?}"));
            }
        }
        for stream in self.packets.keys().chain(other.packets.keys()) {
            let (one, two) = (self.packets.get(stream), other.packets.get(stream));
            if one != two {
                lines.push(format!("{stream}: {one:?} and {two:?}"));
            }
        }
        lines.dedup();
        lines.join("\n")
    }
}

/// A read of a storage that is being deleted or repaired.
fn answer(api: &mut Api, method: &str, path: &str) -> Result<Response, Deleted> {
    let response = api.call(method, path, None);
    if response.status >= 400 && CHANGING.iter().any(|code| response.json()["code"] == *code) {
        return Err(Deleted);
    }
    assert_eq!(
        response.status,
        200,
        "{method} {path}: {}",
        response.brief()
    );
    Ok(response)
}

/// The content of a packet, or that it is damaged: its storage was not repaired yet.
fn packet_content(api: &mut Api, path: &str) -> Result<String, Deleted> {
    let response = api.call("GET", path, None);
    if response.status >= 400 && response.json()["code"] == "damaged" {
        return Ok(UNREADABLE.to_owned());
    }
    Ok(fingerprint(&answer(api, "GET", path)?.body))
}

fn read(api: &mut Api, path: &str) -> Result<Value, Deleted> {
    answer(api, "GET", path).map(|response| response.json())
}

/// All items of a list, over its pages.
fn pages(api: &mut Api, path: &str) -> Result<Vec<Value>, Deleted> {
    let mut all = Vec::new();
    let sign = if path.contains('?') { '&' } else { '?' };
    let mut next = format!("{path}{sign}limit=1000");
    loop {
        let page = read(api, &next)?;
        all.extend(page["items"].as_array().expect("a list").iter().cloned());
        match page["next"].as_str() {
            Some(cursor) => next = format!("{path}{sign}limit=1000&cursor={cursor}"),
            None => return Ok(all),
        }
    }
}

fn packet_count(api: &mut Api, id: &str) -> Result<u64, Deleted> {
    let storage = read(api, &format!("/storages/{id}"))?;
    let count = storage["packets"].as_u64();
    Ok(count.expect("a storage has a number of packets"))
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

/// FNV-1a, with the length: enough to tell packets of a test apart.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}:{hash:016x}", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(state: &str, packets: &[&str]) -> View {
        let packets = packets.iter().map(|&packet| packet.to_owned()).collect();
        View {
            things: [
                ("storage a".to_owned(), json!(state)),
                ("storage b".to_owned(), json!(state)),
            ]
            .into(),
            packets: [("a agent stream".to_owned(), packets)].into(),
            numbers: BTreeMap::new(),
        }
    }

    #[test]
    fn a_fault_leaves_one_of_two_ends_or_what_the_step_allows() {
        let (before, after) = (view("OPEN", &["1"]), view("OPEN", &["1", "2", "3"]));
        let part = view("OPEN", &["1", "2"]);
        let gap = view("OPEN", &["1", "3"]);
        let less = view("OPEN", &[]);
        let mut mixed = view("OPEN", &["1"]);
        mixed
            .things
            .insert("storage b".to_owned(), json!("FINALIZED"));
        let closed = view("FINALIZED", &["1"]);
        for (found, end, between, expected) in [
            (&before, &after, Between::Nothing, true),
            (&after, &after, Between::Nothing, true),
            (&part, &after, Between::Nothing, false),
            (&part, &after, Between::Prefixes, true),
            (&gap, &after, Between::Prefixes, false),
            (&less, &after, Between::Prefixes, false),
            (&part, &after, Between::Things, false),
            (&mixed, &closed, Between::Nothing, false),
            (&mixed, &closed, Between::Things, true),
            (&less, &closed, Between::Things, false),
        ] {
            assert_eq!(
                found.is_between(&before, end, between),
                expected,
                "{found:?}"
            );
        }
    }
}
