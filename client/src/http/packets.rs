use bytes::{Bytes, BytesMut};
use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use storage_format::StreamPosition;
use storage_format::batch::{MEDIA_TYPE, RECORD_HEADER_BYTES, RecordHeader};
use uuid::Uuid;

use super::call::{Call, Client, Content, read_bounded};
use crate::ClientError;

/// Maximum size of a list of receipts: far more than a batch has packets.
const RECEIPTS_BYTES_MAX: u64 = 64 << 20;

/// Where packets are pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTarget {
    /// This storage, or `None` for the buffer and the recordings.
    pub storage: Option<Uuid>,
    /// Agent that the stream belongs to.
    pub agent: String,
    /// Stream of the packets.
    pub stream: String,
}

/// The server's receipt for one packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Producer epoch.
    pub epoch: u64,
    /// Producer sequence.
    pub sequence: u64,
    /// The packet's own number in the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Whether the packet and its index entry are on disk.
    #[serde(default)]
    pub durable: bool,
    /// Whether the packet was already stored.
    #[serde(default)]
    pub duplicate: bool,
    /// Events of the packet, if the server could count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// File, offset, size, storage, and any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The provenance of packets: a file, and the packets of a stream that were cut from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvenanceReport {
    /// Producer epoch of the packets.
    pub epoch: u64,
    /// The file.
    pub path: String,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Modification time, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<i64>,
    /// Its CRC32C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u64>,
    /// The previous report on the same file, if it has grown since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown_from: Option<GrownFrom>,
    /// A lower bound of the packets' numbers in the storage; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_number: u64,
    /// [`PacketProvenance::numbers`] of each packet, in order of sequence.
    pub packets: Vec<[u64; 5]>,
}

/// What the server stored of a [`ProvenanceReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct KeptProvenance {
    /// Lower bound of the numbers of the packets after those reported; `None` if no packet of the
    /// report is in the storage.
    #[serde(default)]
    pub next_number: Option<u64>,
}

/// A file before it grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GrownFrom {
    /// Its length.
    pub file_bytes: u64,
    /// Its CRC32C.
    pub checksum: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The byte and line range of a file that a packet was cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketProvenance {
    /// Producer sequence.
    pub sequence: u64,
    /// Offset in the file; for gzipped text, in the decompressed text.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// First line, counted from 0.
    pub first_line: u64,
    /// Number of lines; 0 if the file is not text.
    pub lines: u64,
}

impl PacketProvenance {
    /// The fields in the order of the report.
    pub fn numbers(&self) -> [u64; 5] {
        [
            self.sequence,
            self.offset,
            self.bytes,
            self.first_line,
            self.lines,
        ]
    }
}

/// The next position that the server expects in a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextSequence {
    /// Latest epoch; 0 if the stream is empty.
    pub epoch: u64,
    /// First missing sequence of that epoch.
    pub sequence: u64,
}

/// The index entry of one packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketInfo {
    /// The packet's own number in the storage.
    pub number: u64,
    /// Agent.
    pub agent: String,
    /// Stream.
    pub stream: String,
    /// Kind.
    pub kind: String,
    /// Producer epoch.
    pub epoch: u64,
    /// Producer sequence.
    pub sequence: u64,
    /// Name of the data file.
    pub file: String,
    /// Offset of the payload in the data file.
    pub offset: u64,
    /// Stored length of the payload.
    pub size: u64,
    /// Length of the packet as the agent sent it.
    pub raw_size: u64,
    /// What it was cut from, if that was asked for and is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<PacketOrigin>,
    /// Time span, counts, and any other fields of the response.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The range of a file that a packet was cut from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketOrigin {
    /// The file, as its producer named it.
    pub path: String,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Time of its last modification, in nanoseconds since the epoch.
    pub modified: Option<i64>,
    /// Its CRC32C.
    pub checksum: Option<u64>,
    /// Offset in the file; in its text, if it is compressed.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The receipts of a push.
#[derive(Debug, Deserialize)]
pub struct Receipts {
    /// Of each packet, in their order.
    pub receipts: Vec<Receipt>,
    /// Records of the packets that queries will skip, as far as the server has read them.
    #[serde(default)]
    pub unreadable_records: u64,
}

impl PushTarget {
    fn url(&self, client: &Client) -> String {
        let (agent, stream) = (self.agent.as_str(), self.stream.as_str());
        let stream = ["agents", agent, "streams", stream, "packets"];
        match self.storage {
            None => client.server().api(&stream),
            Some(id) => {
                let id = id.to_string();
                let mut path = vec!["storages", id.as_str()];
                path.extend(stream);
                client.server().api(&path)
            }
        }
    }
}

impl Client {
    /// Reports the provenance of packets of a stream in a storage. Repeating a report has no
    /// effect.
    pub async fn report_provenance(
        &self,
        storage: Uuid,
        agent: &str,
        stream: &str,
        origin: &ProvenanceReport,
    ) -> Result<KeptProvenance, ClientError> {
        let storage = storage.to_string();
        let path = [
            "storages",
            &storage,
            "agents",
            agent,
            "streams",
            stream,
            "provenance",
        ];
        let url = self.server().api(&path);
        self.json(Call::new(Method::PUT, url).json(origin).repeatable())
            .await
    }

    /// The next position that the server expects in a stream.
    pub async fn next_sequence(&self, target: &PushTarget) -> Result<NextSequence, ClientError> {
        let url = target.url(self);
        let response = self.send(Call::new(Method::HEAD, url.clone())).await?;
        let number = |name: &str| {
            let value = response.headers().get(name);
            let number = value.and_then(|value| value.to_str().ok()?.parse().ok());
            number.ok_or_else(|| ClientError::Answer {
                url: url.clone(),
                what: format!("the header {name} is missing or not a number"),
            })
        };
        Ok(NextSequence {
            epoch: number("tracehold-epoch")?,
            sequence: number("tracehold-next-sequence")?,
        })
    }

    /// Pushes consecutive packets starting at `sequence`, and returns their receipts.
    ///
    /// If a storage accepts only the first packets, the call continues with the rest, as long as
    /// there is progress or the retry policy allows. Without a storage, there is one receipt per
    /// storage that a packet was written to, possibly none.
    pub async fn push(
        &self,
        target: &PushTarget,
        epoch: u64,
        sequence: u64,
        packets: &[Bytes],
    ) -> Result<Receipts, ClientError> {
        let mut call = Call::new(Method::POST, target.url(self)).repeatable();
        let records = batch_chunks(epoch, sequence, packets);
        let mut receipts: Vec<Receipt> = Vec::with_capacity(packets.len());
        let mut budget = self.retry_budget();
        loop {
            call.content = Some(Content {
                content_type: MEDIA_TYPE,
                chunks: records[receipts.len() * 2..].to_vec(),
            });
            match self.send_once(&call).await {
                Ok(response) => {
                    let answer = read_receipts(response).await?;
                    receipts.extend(answer.receipts);
                    if target.storage.is_some() {
                        check_receipts(&call.url, epoch, sequence, packets.len(), &receipts)?;
                    }
                    let unreadable_records = answer.unreadable_records;
                    return Ok(Receipts {
                        receipts,
                        unreadable_records,
                    });
                }
                Err(mut failed) => {
                    let accepted = accepted_before(&mut failed.error);
                    let can_continue = target.storage.is_some() && !accepted.is_empty();
                    if can_continue && receipts.len() + accepted.len() < packets.len() {
                        receipts.extend(accepted);
                        budget = self.retry_budget();
                    }
                    budget.wait(failed).await?;
                }
            }
        }
    }

    /// Calls `each` with the descriptor of every packet of a storage, optionally of one agent or
    /// stream, and optionally with its provenance, if it is known.
    pub async fn each_descriptor(
        &self,
        storage: Uuid,
        (agent, stream): (Option<&str>, Option<&str>),
        with_provenance: bool,
        each: impl FnMut(PacketInfo) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let id = storage.to_string();
        let mut filter = vec![("agent", agent), ("stream", stream)];
        if with_provenance {
            filter.extend([("provenance", Some("true")), ("limit", Some("1000"))]);
        }
        self.each_item(&["storages", &id, "descriptors"], &filter, each)
            .await
    }

    /// The raw bytes of one packet, at most `bytes_max`.
    pub async fn packet(
        &self,
        storage: Uuid,
        number: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, ClientError> {
        let (id, number) = (storage.to_string(), number.to_string());
        let url = self.server().api(&["storages", &id, "packets", &number]);
        let response = self.send(Call::new(Method::GET, url)).await?;
        read_bounded(response, bytes_max).await
    }
}

/// A header and a payload per packet. The headers share one buffer; payloads are not copied.
fn batch_chunks(epoch: u64, sequence: u64, packets: &[Bytes]) -> Vec<Bytes> {
    let mut headers = BytesMut::with_capacity(packets.len() * RECORD_HEADER_BYTES);
    for (packet, sequence) in packets.iter().zip(sequence..) {
        headers.extend_from_slice(
            &RecordHeader::of(packet, StreamPosition::new(epoch, sequence)).encode(),
        );
    }
    let mut headers = headers.freeze();
    let records = packets
        .iter()
        .map(|packet| [headers.split_to(RECORD_HEADER_BYTES), packet.clone()]);
    records.flatten().collect()
}

async fn read_receipts(response: Response) -> Result<Receipts, ClientError> {
    let url = response.url().to_string();
    let body = read_bounded(response, RECEIPTS_BYTES_MAX).await?;
    serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
        url,
        what: format!("invalid receipts: {error}"),
    })
}

/// The receipts of the packets before the refused one.
fn accepted_before(error: &mut ClientError) -> Vec<Receipt> {
    let ClientError::Refused(problem) = error else {
        return Vec::new();
    };
    let receipts = problem.more.remove("receipts");
    // If the list is invalid, these packets are sent again, which is harmless.
    receipts
        .and_then(|receipts| serde_json::from_value(receipts).ok())
        .unwrap_or_default()
}

/// Checks that every packet has a receipt, in order.
fn check_receipts(
    url: &str,
    epoch: u64,
    sequence: u64,
    count: usize,
    receipts: &[Receipt],
) -> Result<(), ClientError> {
    let numbers = receipts
        .iter()
        .map(|receipt| (receipt.epoch, receipt.sequence));
    let expected = (sequence..).take(count).map(|sequence| (epoch, sequence));
    if numbers.eq(expected) {
        return Ok(());
    }
    Err(ClientError::Answer {
        url: url.to_owned(),
        what: format!(
            "{} receipts do not match the {count} packets sent",
            receipts.len()
        ),
    })
}
