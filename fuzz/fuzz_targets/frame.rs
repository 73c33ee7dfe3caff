//! Headers of data files, logs and frames, and blocks of rings. The checksums in the input are
//! corrected first: otherwise a checksum would hide every mutation from the code that follows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage_format::checksum::{crc32c, crc32c_append};
use storage_format::data_file::{self, DataFileHeader};
use storage_format::frame::{self, FrameHeader, FrameLocation};
use storage_format::log::{
    BATCH_HEADER_BYTES, BatchHeader, BatchLocation, FILE_HEADER_BYTES, LogFileHeader,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};
use storage_format::ring_block::{self, RingBlock};
use storage_format::{DataFileId, LeafId, StorageId};

fuzz_target!(|input: &[u8]| {
    let place = FrameLocation {
        storage: StorageId::from_bytes([7; 16]),
        leaf: LeafId(9),
        offset: 4096,
    };
    let mut bytes = input.to_vec();
    if let Some(header) = bytes.get_mut(..frame::HEADER_BYTES) {
        let end = frame::HEADER_BYTES - 4;
        let domain = [&[7; 16][..], &9_u64.to_le_bytes(), &4096_u64.to_le_bytes()].concat();
        let sum = crc32c_append(crc32c(&header[..end]), &domain);
        header[end..].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok(header) = FrameHeader::decode(&bytes, place) {
        // Encoding the decoded header must give the same bytes.
        assert_eq!(
            FrameHeader::decode(&header.encode(place), place).as_ref(),
            Ok(&header)
        );
        assert!(header.frame_bytes() >= frame::HEADER_BYTES as u64);
        let payload = &bytes[frame::HEADER_BYTES..];
        let _checked = header.check_payload(payload, place.offset);
    }
    let mut bytes = input.to_vec();
    if let Some(header) = bytes.get_mut(..data_file::HEADER_BYTES) {
        let end = data_file::HEADER_BYTES - 4;
        let sum = crc32c(&header[..end]);
        header[end..].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok(header) = DataFileHeader::decode(&bytes) {
        assert_eq!(
            DataFileHeader::decode(&header.encode()).as_ref(),
            Ok(&header)
        );
    }
    log_headers(input);
    let mut bytes = input.to_vec();
    if let Some((header, payload)) = bytes.split_at_mut_checked(ring_block::HEADER_BYTES) {
        header[12..16]
            .copy_from_slice(&(u32::try_from(payload.len()).unwrap_or(u32::MAX) / 2).to_le_bytes());
        header[56..60].copy_from_slice(&crc32c(&payload[..payload.len() / 2]).to_le_bytes());
        let sum = crc32c(&header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok((block, rest)) = RingBlock::split(&bytes) {
        let again = [&block.header(), block.payload].concat();
        assert_eq!(RingBlock::split(&again), Ok((block, &[][..])));
        assert_eq!(again.len() + rest.len(), bytes.len());
    }
});

/// `input` up to `length` with a correct checksum in the last four bytes; `None` if it is shorter.
fn with_checksum(input: &[u8], length: usize, domain: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = input.get(..length)?.to_vec();
    let end = length - 4;
    let sum = crc32c_append(crc32c(&bytes[..end]), domain);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

/// Decoded headers of a log must read back from their encoding.
fn log_headers(input: &[u8]) {
    let place = BatchLocation {
        storage: StorageId::from_bytes([7; 16]),
        file: DataFileId(9),
        offset: 4096,
    };
    let domain = [&[7; 16][..], &9_u64.to_le_bytes(), &4096_u64.to_le_bytes()].concat();
    if let Some(bytes) = with_checksum(input, BATCH_HEADER_BYTES, &domain)
        && let Ok(header) = BatchHeader::decode(&bytes, place)
    {
        let again = BatchHeader::decode(&header.encode(place), place);
        assert_eq!(again, Ok(header));
        assert!(header.padded_length() >= header.length);
    }
    if let Some(bytes) = with_checksum(input, SEGMENT_HEADER_BYTES, &[])
        && let Ok(header) = SegmentHeader::decode(&bytes, 0)
    {
        assert_eq!(SegmentHeader::decode(&header.encode(), 0), Ok(header));
    }
    if let Some(bytes) = with_checksum(input, FILE_HEADER_BYTES, &[])
        && let Ok(header) = LogFileHeader::decode_any(&bytes)
    {
        assert_eq!(LogFileHeader::decode_any(&header.encode()), Ok(header));
    }
}
