//! The text that RocksDB's `io_tracer_parser` prints for an IO trace, byte for byte.

use super::decimal::put_decimal;
use super::{IoRecord, TraceHeader};

/// Appends the three lines about the trace.
pub fn put_io_header(out: &mut Vec<u8>, header: &TraceHeader) {
    out.extend_from_slice(b"Start Time: ");
    put_decimal(out, header.start_us);
    out.extend_from_slice(b"\nRocksDB Major Version: ");
    put_decimal(out, u64::from(header.major));
    out.extend_from_slice(b"\nRocksDB Minor Version: ");
    put_decimal(out, u64::from(header.minor));
    out.push(b'\n');
}

/// Appends the line of a record.
#[inline]
pub fn put_io_line(out: &mut Vec<u8>, record: &IoRecord<'_>) {
    out.extend_from_slice(b"Access Time : ");
    put_number_padded::<20>(out, record.end);
    out.extend_from_slice(b", File Name: ");
    put_text_padded::<20>(out, record.file_name);
    out.extend_from_slice(b", File Operation: ");
    put_text_padded::<18>(out, record.operation);
    out.extend_from_slice(b", Latency: ");
    put_number_padded::<10>(out, record.latency);
    out.extend_from_slice(b", IO Status: ");
    out.extend_from_slice(until_nul(record.status));
    if let Some(file_size) = record.file_size {
        out.extend_from_slice(b", File Size: ");
        put_decimal(out, file_size);
    }
    if let Some(len) = record.len {
        out.extend_from_slice(b", Length: ");
        put_decimal(out, len);
    }
    if let Some(offset) = record.offset {
        out.extend_from_slice(b", Offset: ");
        put_decimal(out, offset);
    }
    if let Some(request_id) = record.request_id {
        out.extend_from_slice(b", Request Id: ");
        out.extend_from_slice(request_id);
    }
    out.push(b'\n');
}

const SPACES: [u8; 20] = [b' '; 20];

#[inline]
fn put_number_padded<const WIDTH: usize>(out: &mut Vec<u8>, value: u64) {
    let length = put_decimal(out, value);
    out.extend_from_slice(&SPACES[..WIDTH.saturating_sub(length)]);
}

#[inline]
fn put_text_padded<const WIDTH: usize>(out: &mut Vec<u8>, text: &[u8]) {
    let text = until_nul(text);
    out.extend_from_slice(text);
    out.extend_from_slice(&SPACES[..WIDTH.saturating_sub(text.len())]);
}

/// The parser prints these fields as C strings.
#[inline]
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |end| &text[..end])
}
