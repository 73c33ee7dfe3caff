//! Receipts of packets. A batch has tens of thousands, and a receipt has more than a hundred bytes
//! of JSON, so they are stored as differences to the receipt before, and become JSON piece by piece
//! while they are sent.

mod encoded;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use storage_core::{AcceptedPacket, Receipt, StorageError};
use storage_format::{StorageId, StreamPosition};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::ToSchema;

use self::encoded::{Encoded, Entry, Stored};

/// Receipts that one request may have without a reservation, in bytes.
const FREE_BYTES: usize = 4096;
/// The unit in which memory is reserved.
const UNIT_BYTES: usize = 1024;
/// Memory for receipts is never less than this.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// How long a request waits for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(5);
/// JSON of this size is sent at once.
const PIECE_BYTES: usize = 32 << 10;

/// The receipt of one packet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptDocument {
    /// Producer epoch, as pushed.
    epoch: u64,
    /// Producer sequence, as pushed.
    sequence: u64,
    /// Number of the packet in the storage. This and all members below except `durable` are omitted
    /// if the packet was only accepted.
    number: Option<u64>,
    /// Everything needed to find and read the packet survives a crash.
    durable: bool,
    /// The packet was pushed before; this is its first receipt.
    duplicate: bool,
    /// Name of the data file.
    file: Option<String>,
    /// Offset of the stored payload in the file.
    offset: Option<u64>,
    /// Bytes of the stored payload.
    size: Option<u64>,
    /// Events of the packet, as queries count them; omitted if they could not be counted.
    events: Option<u64>,
    /// The storage, if a recording chose it.
    storage: Option<String>,
}

/// Response to a push.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptsDocument {
    /// In the order of the packets.
    receipts: Vec<ReceiptDocument>,
    /// Records, and packets that are damaged, that queries will skip, as far as the server has read
    /// the packets; omitted if there are none.
    unreadable_records: Option<u64>,
}

/// Memory for the receipts of all requests.
#[derive(Debug, Clone)]
pub(crate) struct ReceiptMemory {
    units: Arc<Semaphore>,
    bytes: u64,
    wait: Duration,
}

impl ReceiptMemory {
    /// As much memory as packets in flight may take.
    pub(crate) fn new(in_flight_bytes_max: u64) -> Self {
        let bytes = in_flight_bytes_max.max(MEMORY_BYTES_MIN);
        let units = usize::try_from(bytes / UNIT_BYTES as u64).unwrap_or(usize::MAX);
        Self {
            units: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            bytes,
            wait: MEMORY_WAIT,
        }
    }
}

/// The receipts so far.
#[derive(Debug)]
pub(crate) struct Receipts {
    encoded: Encoded,
    memory: ReceiptMemory,
    reserved: Option<OwnedSemaphorePermit>,
    /// Some packets are not durable yet.
    is_accepted_only: bool,
    unreadable_records: u64,
}

impl Receipts {
    /// No receipts yet, of packets that are durable when the request is answered, or, if the agent
    /// does not wait (`waits`), only accepted.
    pub(crate) fn new(waits: bool, memory: &ReceiptMemory) -> Self {
        Self {
            encoded: Encoded::default(),
            memory: memory.clone(),
            reserved: None,
            is_accepted_only: !waits,
            unreadable_records: 0,
        }
    }

    /// Adds the receipt of a packet.
    pub(crate) fn add(&mut self, receipt: &Receipt) {
        self.encoded.push(&entry(receipt, None));
    }

    /// Adds the receipt of a packet that passed through recordings, with its storage.
    pub(crate) fn add_for(&mut self, storage: StorageId, receipt: &Receipt) {
        self.encoded.push(&entry(receipt, Some(storage)));
    }

    /// Adds the entry of a packet that is not stored: no recording accepted it, or a measurement
    /// discards it.
    pub(crate) fn add_not_durable(&mut self, position: StreamPosition) {
        self.encoded.push(&Entry {
            position,
            is_duplicate: false,
            stored: None,
            storage: None,
        });
    }

    /// Adds the entry of a packet whose agent does not wait.
    pub(crate) fn add_accepted(&mut self, packet: &AcceptedPacket) {
        self.encoded.push(&Entry {
            position: packet.position,
            is_duplicate: packet.is_duplicate,
            stored: None,
            storage: None,
        });
    }

    /// Says how many records of the packets cannot be read.
    pub(crate) fn set_unreadable(&mut self, records: u64) {
        self.unreadable_records = records;
    }

    /// Reserves the memory of the receipts that were added; waits while other requests have it.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when it is not free in time.
    pub(crate) async fn reserve(&mut self) -> Result<(), StorageError> {
        let reserved = self
            .reserved
            .as_ref()
            .map_or(0, |permit| permit.num_permits());
        let needed = self.encoded.capacity().saturating_sub(FREE_BYTES);
        let lacking = needed.div_ceil(UNIT_BYTES).saturating_sub(reserved);
        if lacking == 0 {
            return Ok(());
        }
        let busy = || StorageError::Busy {
            max: self.memory.bytes,
        };
        let lacking = u32::try_from(lacking).map_err(|_| busy())?;
        let more = Arc::clone(&self.memory.units).acquire_many_owned(lacking);
        let more = tokio::time::timeout(self.memory.wait, more).await;
        let Ok(Ok(more)) = more else {
            return Err(busy());
        };
        match &mut self.reserved {
            Some(reserved) => reserved.merge(more),
            None => self.reserved = Some(more),
        }
        Ok(())
    }

    /// A body that contains the receipts as a JSON list between `before` and `after`.
    pub(crate) fn body(self: Arc<Self>, mut before: Vec<u8>, after: Vec<u8>) -> Body {
        before.push(b'[');
        let length = before.len() as u64 + self.encoded.json_length() + 1 + after.len() as u64;
        let mut body = ReceiptsBody {
            piece: before,
            at: encoded::Cursor::default(),
            after,
            left: length,
            receipts: self,
        };
        if length <= (PIECE_BYTES - encoded::ENTRY_JSON_BYTES_MAX) as u64 {
            // Most responses are sent at once. A piece ends where another receipt may not fit, so
            // longer ones, even below the size of a piece, may need two.
            return body.next_piece().unwrap_or_default().into();
        }
        Body::new(body)
    }
}

fn entry(receipt: &Receipt, storage: Option<StorageId>) -> Entry {
    Entry {
        position: receipt.position,
        is_duplicate: receipt.is_duplicate,
        stored: Some(Stored {
            number: receipt.number,
            file: receipt.descriptor.file(),
            offset: receipt.descriptor.offset(),
            size: receipt.descriptor.size(),
            events: receipt.events,
        }),
        storage,
    }
}

/// A response that contains receipts.
struct ReceiptsBody {
    receipts: Arc<Receipts>,
    /// The next receipt.
    at: encoded::Cursor,
    /// JSON that was not sent yet.
    piece: Vec<u8>,
    after: Vec<u8>,
    /// Bytes that were not sent yet.
    left: u64,
}

impl ReceiptsBody {
    fn next_piece(&mut self) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let mut piece = std::mem::take(&mut self.piece);
        piece.reserve(PIECE_BYTES);
        let encoded = &self.receipts.encoded;
        let mut is_complete = false;
        while piece.len() < PIECE_BYTES - encoded::ENTRY_JSON_BYTES_MAX {
            match encoded.next(&mut self.at) {
                Some(entry) => entry.write(&mut piece, self.at.is_first()),
                None => {
                    is_complete = true;
                    break;
                }
            }
        }
        if is_complete {
            piece.push(b']');
            piece.extend_from_slice(&self.after);
        }
        self.left = self.left.saturating_sub(piece.len() as u64);
        assert_eq!(
            is_complete,
            self.left == 0,
            "the length of the receipts is known before they are sent"
        );
        Some(piece.into())
    }
}

impl http_body::Body for ReceiptsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl IntoResponse for Receipts {
    fn into_response(self) -> Response {
        let is_accepted_only = self.is_accepted_only;
        let after = match self.unreadable_records {
            0 => "}".to_owned(),
            records => format!(",\"unreadable_records\":{records}}}"),
        };
        let body = Arc::new(self).body(b"{\"receipts\":".to_vec(), after.into_bytes());
        let mut response = Response::new(body);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if is_accepted_only {
            *response.status_mut() = StatusCode::ACCEPTED;
            response.headers_mut().insert(
                HeaderName::from_static("preference-applied"),
                HeaderValue::from_static("respond-async"),
            );
        }
        response
    }
}

#[cfg(test)]
mod tests;
