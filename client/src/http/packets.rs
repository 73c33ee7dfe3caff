use bytes::{Bytes, BytesMut};
use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use storage_format::StreamPosition;
use storage_format::batch::{MEDIA_TYPE, RECORD_HEADER_BYTES, RecordHeader};
use uuid::Uuid;

use super::call::{Call, Client, Content, read_bounded};
use crate::ClientError;

/// Longest list of receipts that is read: far more than a batch has packets.
const RECEIPTS_BYTES_MAX: u64 = 64 << 20;

/// Where packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTarget {
    /// Straight into this storage, or to the buffer and the recordings that want them.
    pub storage: Option<Uuid>,
    /// Agent that the stream belongs to.
    pub agent: String,
    /// Stream of the packets.
    pub stream: String,
}

/// The server's word for one packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Producer epoch.
    pub epoch: u64,
    /// Producer sequence.
    pub sequence: u64,
    /// The packet's own number in the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Everything needed to find the packet again is on disk.
    #[serde(default)]
    pub durable: bool,
    /// The packet had been there before.
    #[serde(default)]
    pub duplicate: bool,
    /// File, offset, size, storage, and whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A file, and the packets of a stream that were cut from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvenanceReport {
    /// Producer epoch of the packets.
    pub epoch: u64,
    /// The file.
    pub path: String,
    /// Its length.
    pub file_bytes: u64,
    /// When it was last written, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<i64>,
    /// CRC32C of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u64>,
    /// What was told before of the same file, which has grown since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown_from: Option<GrownFrom>,
    /// Number of a packet in the storage before which none of these is; 0 where that is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_number: u64,
    /// [`PacketProvenance::numbers`] of each packet, by sequence.
    pub packets: Vec<[u64; 5]>,
}

/// A file before it grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GrownFrom {
    /// Its length.
    pub file_bytes: u64,
    /// CRC32C of it.
    pub checksum: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Which stretch of a file a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketProvenance {
    /// Producer sequence.
    pub sequence: u64,
    /// First byte in the file; after inflating, where it is compressed text.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// First line, from 0.
    pub first_line: u64,
    /// Lines; 0 where the file is no text.
    pub lines: u64,
}

impl PacketProvenance {
    /// As it is told.
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

/// What the server expects next of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextSequence {
    /// Newest epoch; 0 when there is nothing yet.
    pub epoch: u64,
    /// First sequence of that epoch that is not there.
    pub sequence: u64,
}

/// What the index tree says of one packet.
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
    /// Length of the payload as stored.
    pub size: u64,
    /// Length of the packet as the agent sent it.
    pub raw_size: u64,
    /// Time span, counts, and whatever else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Receipts {
    receipts: Vec<Receipt>,
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
    /// Tells where packets of a stream in a storage came from. Telling it again changes nothing.
    pub async fn report_provenance(
        &self,
        storage: Uuid,
        agent: &str,
        stream: &str,
        origin: &ProvenanceReport,
    ) -> Result<Value, ClientError> {
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

    /// What the server expects next of a stream.
    pub async fn next_sequence(&self, target: &PushTarget) -> Result<NextSequence, ClientError> {
        let url = target.url(self);
        let response = self.send(Call::new(Method::HEAD, url.clone())).await?;
        let number = |name: &str| {
            let value = response.headers().get(name);
            let number = value.and_then(|value| value.to_str().ok()?.parse().ok());
            number.ok_or_else(|| ClientError::Answer {
                url: url.clone(),
                what: format!("no number in the header {name}"),
            })
        };
        Ok(NextSequence {
            epoch: number("tracehold-epoch")?,
            sequence: number("tracehold-next-sequence")?,
        })
    }

    /// Pushes packets that follow one another from `sequence` on, and gives back their receipts.
    ///
    /// When a storage takes only the first of them, those are not sent again: it goes on with the
    /// rest, as long as the retry policy allows or there is progress. Without a storage there is a
    /// receipt for each storage that a packet went to, which may be none.
    pub async fn push(
        &self,
        target: &PushTarget,
        epoch: u64,
        sequence: u64,
        packets: &[Bytes],
    ) -> Result<Vec<Receipt>, ClientError> {
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
                    receipts.extend(read_receipts(response).await?);
                    if target.storage.is_some() {
                        check_receipts(&call.url, epoch, sequence, packets.len(), &receipts)?;
                    }
                    return Ok(receipts);
                }
                Err(mut failed) => {
                    let taken = taken_before(&mut failed.error);
                    let goes_on = target.storage.is_some() && !taken.is_empty();
                    if goes_on && receipts.len() + taken.len() < packets.len() {
                        receipts.extend(taken);
                        budget = self.retry_budget();
                    }
                    budget.wait(failed).await?;
                }
            }
        }
    }

    /// Calls `each` with the descriptor of every packet of a storage, optionally of one agent or
    /// stream.
    pub async fn each_descriptor(
        &self,
        storage: Uuid,
        agent: Option<&str>,
        stream: Option<&str>,
        each: impl FnMut(PacketInfo) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let id = storage.to_string();
        let filter = [("agent", agent), ("stream", stream)];
        self.each_item(&["storages", &id, "descriptors"], &filter, each)
            .await
    }

    /// One packet, the bytes as the agent sent them; at most `bytes_max` of them.
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

/// A header and a payload for each packet: the headers share one buffer, no payload is copied.
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

async fn read_receipts(response: Response) -> Result<Vec<Receipt>, ClientError> {
    let url = response.url().to_string();
    let body = read_bounded(response, RECEIPTS_BYTES_MAX).await?;
    match serde_json::from_slice::<Receipts>(&body) {
        Ok(answer) => Ok(answer.receipts),
        Err(error) => Err(ClientError::Answer {
            url,
            what: format!("no receipts: {error}"),
        }),
    }
}

/// The receipts of the packets before the one that was refused.
fn taken_before(error: &mut ClientError) -> Vec<Receipt> {
    let ClientError::Refused(problem) = error else {
        return Vec::new();
    };
    let receipts = problem.more.remove("receipts");
    // A list that is not understood only means that packets are sent twice, which is harmless.
    receipts
        .and_then(|receipts| serde_json::from_value(receipts).ok())
        .unwrap_or_default()
}

/// Every packet must have its receipt, in order.
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
            "{} receipts that do not fit {count} packets sent",
            receipts.len()
        ),
    })
}
