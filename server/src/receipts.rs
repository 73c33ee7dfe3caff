//! Receipts of packets, written as JSON while they arrive: a batch has tens of thousands.

use std::io::Write;
use storage_format::StreamPosition;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use storage_core::{AcceptedPacket, Receipt};
use storage_format::StorageId;
use utoipa::ToSchema;

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
    /// The storage, if a recording chose it.
    storage: Option<String>,
}

/// Response to a push.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptsDocument {
    /// In the order of the packets.
    receipts: Vec<ReceiptDocument>,
}

/// The receipts so far, as elements of a JSON list.
#[derive(Debug)]
pub(crate) struct Receipts {
    text: Vec<u8>,
    /// Some packets are not durable yet.
    is_accepted_only: bool,
}

impl Receipts {
    /// No receipts yet, of packets that are durable when the request is answered, or, if the agent
    /// does not wait (`waits`), only accepted.
    pub(crate) fn new(waits: bool) -> Self {
        Self {
            text: Vec::new(),
            is_accepted_only: !waits,
        }
    }

    /// Adds the receipt of a packet.
    pub(crate) fn add(&mut self, receipt: &Receipt) {
        self.separate();
        // All values are numbers, booleans or the digits of a leaf id, so nothing needs escaping.
        write!(
            self.text,
            "{{\"epoch\":{},\"sequence\":{},\"number\":{},\"durable\":true,\"duplicate\":{},\
             \"file\":\"{}.itdata\",\"offset\":{},\"size\":{}}}",
            receipt.position.epoch,
            receipt.position.sequence,
            receipt.number,
            receipt.is_duplicate,
            receipt.descriptor.file(),
            receipt.descriptor.offset(),
            receipt.descriptor.size(),
        )
        .expect("writing to memory does not fail");
    }

    /// Adds the receipt of a packet that passed through recordings, with its storage.
    pub(crate) fn add_for(&mut self, storage: StorageId, receipt: &Receipt) {
        self.add(receipt);
        self.text.truncate(self.text.len() - 1);
        write!(self.text, ",\"storage\":\"{storage}\"}}").expect("writing to memory does not fail");
    }

    /// Adds the entry of a packet that is not stored: no recording accepted it, or a measurement
    /// discards it.
    pub(crate) fn add_not_durable(&mut self, position: StreamPosition) {
        self.add_pending(position, false);
    }

    /// Adds the entry of a packet whose agent does not wait.
    pub(crate) fn add_accepted(&mut self, packet: &AcceptedPacket) {
        self.add_pending(packet.position, packet.is_duplicate);
    }

    fn add_pending(&mut self, position: StreamPosition, is_duplicate: bool) {
        let StreamPosition { epoch, sequence } = position;
        self.separate();
        write!(
            self.text,
            "{{\"epoch\":{epoch},\"sequence\":{sequence},\"durable\":false,\
             \"duplicate\":{is_duplicate}}}",
        )
        .expect("writing to memory does not fail");
    }

    fn separate(&mut self) {
        if self.text.is_empty() {
            self.text.reserve(256)
        } else {
            self.text.push(b',')
        }
    }

    /// The receipts as a member of a problem document.
    pub(crate) fn into_value(self) -> Value {
        let list = [b"[", &self.text[..], b"]"].concat();
        serde_json::from_slice(&list).expect("receipts are valid JSON")
    }
}

impl IntoResponse for Receipts {
    fn into_response(self) -> Response {
        const HEAD: &[u8] = b"{\"receipts\":[";
        let mut body = Vec::with_capacity(HEAD.len() + self.text.len() + 2);
        body.extend_from_slice(HEAD);
        body.extend_from_slice(&self.text);
        body.extend_from_slice(b"]}");
        let mut response = Response::new(body.into());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.is_accepted_only {
            *response.status_mut() = StatusCode::ACCEPTED;
            response.headers_mut().insert(
                HeaderName::from_static("preference-applied"),
                HeaderValue::from_static("respond-async"),
            );
        }
        response
    }
}
