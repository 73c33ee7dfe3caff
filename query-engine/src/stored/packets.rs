//! The packets of a leaf as they were pushed, without decoding their events.

use std::ops::{ControlFlow, Range};

use storage_format::frame::{FrameHeader, HEADER_BYTES};
use storage_format::index_part::PacketEntry;

use super::StoredLeaf;
use super::frames::Frames;
use crate::ReadError;

/// Calls `each` with the entry of every packet of a leaf, in the order of the leaf. The data file
/// is read only if the index of the storage has no entries for packets.
///
/// # Errors
/// When the index or the data file cannot be read, or is damaged.
pub fn each_packet(
    stored: &StoredLeaf,
    each: &mut dyn FnMut(&PacketEntry),
) -> Result<(), ReadError> {
    let mut found = false;
    if let Some(times) = &stored.times {
        let listed = times.each(0, &mut |entry| {
            found = true;
            each(entry);
        });
        listed.map_err(|error| ReadError::fetch(stored.data.place(), error))?;
    }
    if found {
        return Ok(());
    }
    let mut frames = Frames::new(&stored.leaf, &*stored.data);
    for run in stored.leaf.runs.clone() {
        let _ = frames.read_run(run, &mut |header, offset, _| {
            each(&PacketEntry::of_frame(header, offset + HEADER_BYTES as u64));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

/// Calls `each` with the header of every packet of a leaf and its bytes as they were pushed, in the
/// order of the leaf.
///
/// # Errors
/// When the data file cannot be read, or a packet is damaged.
pub fn each_raw_packet(
    stored: &StoredLeaf,
    each: &mut dyn FnMut(&FrameHeader, &[u8]),
) -> Result<(), ReadError> {
    let mut frames = Frames::new(&stored.leaf, &*stored.data);
    for run in stored.leaf.runs.clone() {
        let _ = frames.read_run(run, &mut |header, _, raw| {
            each(header, raw);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

/// The bytes of a packet as it was pushed: the one with this number, stored payload and checksum.
///
/// # Errors
/// When the data file cannot be read, or the packet is damaged.
pub fn read_packet(
    stored: &StoredLeaf,
    number: u64,
    payload: Range<u64>,
    raw_checksum: u32,
) -> Result<Vec<u8>, ReadError> {
    let offset = payload.start;
    let frame = offset.saturating_sub(HEADER_BYTES as u64)..payload.end;
    let mut packet = None;
    let mut frames = Frames::new(&stored.leaf, &*stored.data);
    let _ = frames.read_ranges(&[frame], &mut |header, _, raw| {
        if header.number == number && header.raw_checksum == raw_checksum {
            packet = Some(raw.to_vec());
        }
        Ok(ControlFlow::Break(()))
    })?;
    packet.ok_or_else(|| ReadError::DamagedPacket {
        place: stored.data.place(),
        offset,
        problem: "it is not the packet of the index",
    })
}
