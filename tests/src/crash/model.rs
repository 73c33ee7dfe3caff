//! The model of a crash run: what the server acknowledged, and therefore still must have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::agent::{Agent, Receipt};
use crate::api::Api;
use crate::http::{Connection, Request, Response};
use crate::payload::{Random, packet};

/// Streams of a storage: agent, stream, codec, most packets in one request.
const STREAMS: &[(&str, &str, &str, u64)] = &[
    ("left", "one-by-one", "none", 1),
    ("left", "small-batches", "none", 5),
    ("right", "compressed", "zstd", 1),
    ("right", "large-batches", "zstd", 40),
];

/// One storage from creation to deletion.
pub(super) struct StorageRun {
    storage: String,
    streams: Vec<Stream>,
    finalized: bool,
    gone: bool,
}

/// One stream and all its acknowledged packets.
pub(super) struct Stream {
    agent: Agent,
    /// Identifies the payloads of this stream among those of all storages.
    seed: u64,
    batch_max: u64,
    /// The first sequence that the server expected.
    first: u64,
    /// Sequence to number in the storage, without gaps.
    numbers: BTreeMap<u64, u64>,
    /// Packets whose responses were lost when the server was killed: each may be stored or not.
    unanswered: u64,
    /// Packets with numbers below this sequence were already read back.
    read_back: u64,
    kept_without_ack: u64,
    /// Packets that a finalized storage contains without acknowledgement: their numbers are
    /// unknown.
    unnumbered: u64,
    random: Random,
}

impl StorageRun {
    pub(super) fn begin(api: &mut Api, name: u64) -> Self {
        let storage = api.create_storage(&format!("crash-{name}"));
        let stream = |(index, &(agent, stream, codec, batch_max)): (u64, &(_, _, _, _))| {
            let agent = Agent::declare(api, &storage, agent, stream, codec);
            Stream::new(agent, name * 100 + index, batch_max, api)
        };
        let streams = (0..).zip(STREAMS).map(stream).collect();
        Self {
            storage,
            streams,
            finalized: false,
            gone: false,
        }
    }

    pub(super) fn storage(&self) -> &str {
        &self.storage
    }

    pub(super) fn is_finalized(&self) -> bool {
        self.finalized
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.gone
    }

    pub(super) fn streams_mut(&mut self) -> &mut [Stream] {
        &mut self.streams
    }

    pub(super) fn finalization_was_acknowledged(&mut self) {
        self.finalized = true;
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.streams.iter().map(Stream::packet_count).sum()
    }

    pub(super) fn kept_without_ack(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.kept_without_ack)
            .sum()
    }

    /// After a restart: no acknowledged packet is lost, duplicated or changed.
    pub(super) fn judge(&mut self, api: &mut Api) {
        let shown = api.call("GET", &format!("/storages/{}", self.storage), None);
        if shown.status == 404 && self.finalized {
            // Only finalized storages are deleted in this run.
            self.gone = true;
            return;
        }
        assert_eq!(
            shown.status,
            200,
            "the storage is missing: {}",
            shown.brief()
        );
        match shown.json()["state"].as_str() {
            Some("OPEN") => assert!(!self.finalized, "finalized, and open after a restart"),
            Some("FINALIZED") => self.finalized = true,
            // The start continues it.
            Some("FINALIZING") => self.finalize(api),
            state => panic!("state {state:?} after a restart: {}", shown.brief()),
        }
        for stream in &mut self.streams {
            stream.resolve_unanswered(api, self.finalized);
            stream.read_back(api, &self.storage);
        }
        self.count(api);
    }

    pub(super) fn finalize(&mut self, api: &mut Api) {
        api.finalize(&self.storage);
        self.finalized = true;
    }

    /// The last check: every packet of a storage that is now finalized, from the beginning.
    pub(super) fn check_everything(&mut self, api: &mut Api) {
        if self.gone {
            return;
        }
        if !self.finalized {
            self.finalize(api);
        }
        let damage = api.verify(&self.storage);
        assert!(damage.is_empty(), "verify found {damage:?}");
        for stream in &mut self.streams {
            stream.read_back = 0;
            stream.read_back(api, &self.storage);
        }
        self.count(api);
        api.done("DELETE", &format!("/storages/{}", self.storage), None);
        self.gone = true;
    }

    /// As many packets as were acknowledged, each with a different number.
    fn count(&self, api: &mut Api) {
        let mut numbers = BTreeMap::new();
        for stream in &self.streams {
            for (&sequence, &number) in &stream.numbers {
                let other = numbers.insert(number, (stream.seed, sequence));
                assert_eq!(other, None, "two packets have the number {number}");
            }
        }
        let packets = api.storage(&self.storage)["packets"].as_u64();
        let unnumbered: u64 = self.streams.iter().map(|stream| stream.unnumbered).sum();
        let expected =
            u64::try_from(numbers.len()).expect("a count fits into 64 bits") + unnumbered;
        assert_eq!(packets, Some(expected), "packets in the storage");
    }
}

impl Stream {
    fn new(agent: Agent, seed: u64, batch_max: u64, api: &mut Api) -> Self {
        let first = agent.next_sequence(api);
        Self {
            agent,
            seed,
            batch_max,
            first,
            numbers: BTreeMap::new(),
            unanswered: 0,
            read_back: 0,
            kept_without_ack: 0,
            unnumbered: 0,
            random: Random::new(seed),
        }
    }

    fn packet_count(&self) -> u64 {
        u64::try_from(self.numbers.len()).expect("a count fits into 64 bits")
    }

    fn next(&self) -> u64 {
        self.first + self.packet_count()
    }

    fn packet(&self, sequence: u64) -> Vec<u8> {
        packet(self.seed, sequence)
    }

    /// Pushes until the server dies, refuses because the storage is finalized, or `stop` is set.
    pub(super) fn push_until(&mut self, address: SocketAddr, stop: &AtomicBool) {
        let Ok(connection) = Connection::open(address) else {
            return;
        };
        let mut api = Api::new(connection);
        while !stop.load(Ordering::Relaxed) {
            let count = 1 + self.random.below(self.batch_max);
            let first = self.next();
            let packets: Vec<Vec<u8>> = (first..first + count)
                .map(|sequence| self.packet(sequence))
                .collect();
            self.unanswered = count;
            let answer = match packets.as_slice() {
                [packet] => self.agent.post(&mut api, first, packet),
                packets => self.agent.post_many(&mut api, first, packets),
            };
            let Ok(response) = answer else { return };
            if self.record(&response) == Going::Stop {
                return;
            }
        }
    }

    /// Records the acknowledgements in a response. A refusal of several packets lists those
    /// accepted before it.
    fn record(&mut self, response: &Response) -> Going {
        let answer = response.json();
        if answer["receipts"].is_array() {
            self.acknowledge(Receipt::all(&answer));
        }
        self.unanswered = 0;
        match response.status {
            // Busy: send the same packets again.
            200 | 429 => Going::On,
            // The storage is being finalized, or the server is shutting down.
            409 | 503 => Going::Stop,
            _ => panic!("a push got the response {}", response.brief()),
        }
    }

    fn acknowledge(&mut self, receipts: Vec<Receipt>) {
        for receipt in receipts {
            assert!(receipt.durable, "200 means durable: {receipt:?}");
            assert_eq!(receipt.sequence, self.next(), "receipts are in order");
            self.numbers.insert(receipt.sequence, receipt.number);
        }
    }

    /// Finds out which of the unanswered packets the server has, and gets their receipts by sending
    /// them again.
    fn resolve_unanswered(&mut self, api: &mut Api, finalized: bool) {
        let known = self.next() + self.unnumbered;
        let next = self.agent.next_sequence(api);
        let name = self.agent.path();
        assert!(
            next >= known,
            "{name}: acknowledged below {known}, but {next} is wanted"
        );
        let most = known + self.unanswered;
        assert!(
            next <= most,
            "{name}: sent below {most}, but {next} is wanted"
        );
        self.unanswered = 0;
        for sequence in known..next {
            // A finalized storage accepts no duplicates; `next` says how many of them it has.
            if finalized {
                self.unnumbered += 1;
                continue;
            }
            let receipts = self.repeat(api, sequence);
            self.acknowledge(receipts);
            self.kept_without_ack += 1;
        }
        // A duplicate of the last packet gets the first receipt.
        if let Some((&sequence, &number)) = self.numbers.last_key_value()
            && !finalized
        {
            let receipt = &self.repeat(api, sequence)[0];
            assert_eq!(receipt.number, number, "{receipt:?}");
        }
    }

    fn repeat(&self, api: &mut Api, sequence: u64) -> Vec<Receipt> {
        let packet = self.packet(sequence);
        let response = self
            .agent
            .post(api, sequence, &packet)
            .expect("the server answers");
        assert_eq!(response.status, 200, "a duplicate: {}", response.brief());
        let receipts = Receipt::all(&response.json());
        assert!(
            receipts.len() == 1 && receipts[0].duplicate,
            "a repeat is known: {receipts:?}"
        );
        receipts
    }

    /// Compares every packet that was not compared before.
    fn read_back(&mut self, api: &mut Api, storage: &str) {
        for (&sequence, &number) in self.numbers.range(self.read_back..) {
            let found = api.packet(storage, number);
            assert!(
                found == self.packet(sequence),
                "packet {number} differs from what was sent"
            );
        }
        self.read_back = self.next();
    }
}

#[derive(PartialEq, Eq)]
enum Going {
    On,
    Stop,
}

/// Finalizes the storage; returns whether the server acknowledged it.
pub(super) fn finalize(address: SocketAddr, storage: &str) -> bool {
    let path = format!("/api/v1/storages/{storage}/finalize");
    let Some(response) = try_send(address, &Request::new("POST", &path)) else {
        return false;
    };
    // The response is 409 if an earlier finalization completed before the kill.
    assert!(
        matches!(response.status, 200 | 202 | 409),
        "{}",
        response.brief()
    );
    response.status == 200
}

/// Deletes the storage, as far as the server gets before it is killed.
pub(super) fn delete(address: SocketAddr, storage: &str) {
    let path = format!("/api/v1/storages/{storage}");
    if let Some(response) = try_send(address, &Request::new("DELETE", &path)) {
        assert!(
            (200..300).contains(&response.status),
            "{}",
            response.brief()
        );
    }
}

fn try_send(address: SocketAddr, request: &Request<'_>) -> Option<Response> {
    Connection::open(address).ok()?.send(request).ok()
}
