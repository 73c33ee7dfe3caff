//! An agent that pushes packets and remembers their receipts.

use std::io;

use serde_json::{Value, json};

use crate::api::{Api, Problem};
use crate::http::{Request, Response};

/// The content type of a body with one packet.
const ONE_PACKET: &str = "application/octet-stream";

/// The content type of a body with many packets.
const MANY_PACKETS: &str = "application/vnd.tracehold.packets";

/// The receipt of an accepted packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The producer's epoch.
    pub epoch: u64,
    /// The producer's sequence.
    pub sequence: u64,
    /// The number of the packet in the storage.
    pub number: u64,
    /// Whether it is durable.
    pub durable: bool,
    /// Whether it was stored before.
    pub duplicate: bool,
    /// The data file, with the offset and size of the stored bytes.
    pub place: Option<(String, u64, u64)>,
}

impl Receipt {
    /// The receipts in a response.
    ///
    /// # Panics
    /// If there are none, or one lacks a field.
    pub fn all(answer: &Value) -> Vec<Self> {
        let number = |receipt: &Value, field: &str| match receipt[field].as_u64() {
            Some(number) => number,
            None => panic!("no {field} in the receipt {receipt}"),
        };
        let flag = |receipt: &Value, field: &str| match receipt[field].as_bool() {
            Some(flag) => flag,
            None => panic!("no {field} in the receipt {receipt}"),
        };
        let receipts = answer["receipts"]
            .as_array()
            .expect("a response to a push contains receipts");
        let receipt = |receipt: &Value| Self {
            epoch: number(receipt, "epoch"),
            sequence: number(receipt, "sequence"),
            number: number(receipt, "number"),
            durable: flag(receipt, "durable"),
            duplicate: flag(receipt, "duplicate"),
            place: receipt["file"].as_str().map(|file| {
                (
                    file.to_owned(),
                    number(receipt, "offset"),
                    number(receipt, "size"),
                )
            }),
        };
        receipts.iter().map(receipt).collect()
    }
}

/// One stream of one agent, pushed directly into a storage.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The path for `POST`.
    path: String,
    /// The producer's epoch.
    pub epoch: u64,
}

impl Agent {
    /// Registers the agent and declares the stream, of kind `raw`, with these options.
    pub fn declare(api: &mut Api, storage: &str, agent: &str, stream: &str, codec: &str) -> Self {
        Self::register(api, agent);
        Self::declare_stream(api, agent, stream, "raw", codec);
        Self::new(storage, agent, stream)
    }

    /// Registers an agent.
    pub fn register(api: &mut Api, agent: &str) {
        let spec = json!({ "name": agent, "host": "test" });
        api.done("PUT", &format!("/agents/{agent}"), Some(&spec));
    }

    /// Declares a stream of a registered agent.
    pub fn declare_stream(api: &mut Api, agent: &str, stream: &str, kind: &str, codec: &str) {
        let spec = json!({ "kind": kind, "codec": codec });
        let path = format!("/agents/{agent}/streams/{stream}");
        api.done("PUT", &path, Some(&spec));
    }

    /// A stream that is already declared.
    pub fn new(storage: &str, agent: &str, stream: &str) -> Self {
        Self::of_path(&format!(
            "/api/v1/storages/{storage}/agents/{agent}/streams/{stream}/packets"
        ))
    }

    /// A stream that is already declared and pushed to this path.
    pub fn of_path(path: &str) -> Self {
        let path = path.to_owned();
        Self { path, epoch: 1 }
    }

    /// The path for `POST`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Posts one packet and returns the response.
    ///
    /// # Errors
    /// If the connection breaks: the server may or may not have stored the packet.
    pub fn post(&self, api: &mut Api, sequence: u64, packet: &[u8]) -> io::Result<Response> {
        let request = Request::new("POST", &self.path)
            .header("content-type", ONE_PACKET)
            .header("tracehold-epoch", self.epoch)
            .header("tracehold-sequence", sequence)
            .body(packet);
        api.send(&request)
    }

    /// Posts one packet without waiting for the disk and returns the response.
    ///
    /// # Errors
    /// If the connection breaks: the server may or may not have stored the packet.
    pub fn post_async(&self, api: &mut Api, sequence: u64, packet: &[u8]) -> io::Result<Response> {
        let request = Request::new("POST", &self.path)
            .header("content-type", ONE_PACKET)
            .header("tracehold-epoch", self.epoch)
            .header("tracehold-sequence", sequence)
            .header("prefer", "respond-async")
            .body(packet);
        api.send(&request)
    }

    /// Posts one packet that must be accepted.
    pub fn push(&self, api: &mut Api, sequence: u64, packet: &[u8]) -> Receipt {
        let response = self
            .post(api, sequence, packet)
            .expect("the server answers");
        assert_eq!(
            response.status,
            200,
            "packet {sequence}: {}",
            response.brief()
        );
        let mut receipts = Receipt::all(&response.json());
        assert_eq!(
            receipts.len(),
            1,
            "one packet, one receipt: {}",
            response.brief()
        );
        let receipt = receipts.remove(0);
        assert_eq!((receipt.epoch, receipt.sequence), (self.epoch, sequence));
        assert!(receipt.durable, "200 means durable: {receipt:?}");
        receipt
    }

    /// Posts one packet that must be refused.
    pub fn refused(&self, api: &mut Api, sequence: u64, packet: &[u8]) -> Problem {
        Problem::of(
            &self
                .post(api, sequence, packet)
                .expect("the server answers"),
        )
    }

    /// Posts many packets in one body and returns the response.
    ///
    /// # Errors
    /// If the connection breaks: the server may have stored any of them.
    pub fn post_many(
        &self,
        api: &mut Api,
        first: u64,
        packets: &[Vec<u8>],
    ) -> io::Result<Response> {
        self.post_batch(api, first, &mut self.batch(packets))
    }

    /// Packets that are posted again and again: their checksums are computed once.
    pub fn batch(&self, packets: &[Vec<u8>]) -> Batch {
        let (mut body, mut headers) = (Vec::new(), Vec::new());
        for packet in packets {
            headers.push(body.len());
            body.extend_from_slice(&batch_header(packet, self.epoch, 0));
            body.extend_from_slice(packet);
        }
        Batch { body, headers }
    }

    /// As [`Self::post_many`].
    ///
    /// # Errors
    /// If the connection breaks: the server may have stored any of them.
    pub fn post_batch(&self, api: &mut Api, first: u64, batch: &mut Batch) -> io::Result<Response> {
        for (sequence, header) in (first..).zip(&batch.headers) {
            let at = header + BATCH_HEADER_BYTES - 8..header + BATCH_HEADER_BYTES;
            batch.body[at].copy_from_slice(&sequence.to_le_bytes());
        }
        let request = Request::new("POST", &self.path)
            .header("content-type", MANY_PACKETS)
            .body(&batch.body);
        api.send(&request)
    }

    /// The sequence that the server expects next.
    pub fn next_sequence(&self, api: &mut Api) -> u64 {
        let request = Request::new("HEAD", &self.path).header("tracehold-epoch", self.epoch);
        let response = api.send(&request).expect("the server answers");
        let next = response.header("tracehold-next-sequence");
        match next.and_then(|text| text.parse().ok()) {
            Some(next) => next,
            None => panic!("no next sequence in {}", response.brief()),
        }
    }
}

const BATCH_HEADER_BYTES: usize = 24;

/// A body with many packets, see [`Agent::batch`].
pub struct Batch {
    body: Vec<u8>,
    /// Where the headers of the packets are.
    headers: Vec<usize>,
}

/// The header of each packet in a body with many: length and CRC32C of the payload (u32), epoch and
/// sequence (u64), all little-endian.
pub(crate) fn batch_header(packet: &[u8], epoch: u64, sequence: u64) -> [u8; BATCH_HEADER_BYTES] {
    let length = u32::try_from(packet.len()).expect("test packets are small");
    let mut header = [0; BATCH_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&crc32c(packet).to_le_bytes());
    header[8..16].copy_from_slice(&epoch.to_le_bytes());
    header[16..].copy_from_slice(&sequence.to_le_bytes());
    header
}

/// CRC32C (Castagnoli), bit by bit: slow, and independent of the server's code.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnoli() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
