//! Chrome trace JSON: `{"traceEvents": [...]}`, or the list alone.
//!
//! | step | where |
//! | --- | --- |
//! | where events begin and end, in bounded memory | [`Scanner`] |
//! | a file in packets, cut between events | [`PacketReader`] |
//! | one event: its members and their values | [`record`], [`json`] |
//! | events with the requested fields | [`ChromeDecoder`] |
//! | durations of begin and end events of a packet | [`pairs`] |
//! | durations of those in different packets | [`Unpaired`] |
//!
//! The packets of a file are consecutive ranges of its bytes. Every packet but the first starts
//! with the comma after an event, or after a member of the document behind the list of events, so
//! each packet can be decoded alone (`docs/decisions/0055-chrome-traces.md`).

mod decoder;
mod event;
mod found;
mod json;
mod open_begins;
mod pairs;
mod reader;
mod record;
mod scanner;
mod side;
mod time;
mod unpaired;

#[cfg(test)]
mod tests;

pub use decoder::ChromeDecoder;
pub use found::{Damage, Found};
pub use reader::{Packet, PacketReader, ReadError, cut_note};
pub use scanner::Scanner;
pub use unpaired::{Durations, MARKS_MAX, MarkKind, OutsideDurations, Unpaired, UnpairedMark};

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::gzip::{Inflater, PiecePacket, is_piece};
use crate::{DamagedBytes, DecodeError};

/// The name of the format in messages.
const FORMAT: &str = "chrome";

/// Fields that are indexed by default, in addition to `name` and `cat`.
pub(crate) const DIMENSIONS: [&str; 3] = ["ph", "pid", "tid"];

/// Nanoseconds of the unit of times in Chrome traces.
pub(crate) const UNIT_NANOS: u32 = 1000;

/// Bytes of the packets that files are cut into by default, by pushes and queries alike.
pub const PACKET_BYTES: usize = 1 << 20;

/// Bytes between two places where a file can be cut: the longest event.
pub const EVENT_BYTES_MAX: usize = 32 << 20;

/// Events of a list that are examined to recognize it.
const EVENTS_EXAMINED: usize = 16;

/// The text of a packet, which may be a piece of a gzip member.
fn packet_text(packet: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    if !is_piece(packet) {
        return Ok(packet.into());
    }
    DamagedBytes::refuse(packet, FORMAT)?;
    let text = PiecePacket::decode(packet);
    let text = text.and_then(|piece| piece.text(&mut Inflater::default()));
    match text {
        Ok(text) => Ok(text.into()),
        Err(damage) => Err(DecodeError::Damaged {
            format: FORMAT,
            offset: 0,
            reason: damage.to_string(),
        }),
    }
}

/// What the start of a file says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recognition {
    Chrome,
    Other,
    /// The list of events or its first event does not end in the prefix.
    Undecided,
}

/// Whether a file that starts with `prefix` is a Chrome trace: an object with a list `traceEvents`,
/// or a list of events with commas between them, or on one line. A DFTracer file has no commas, and
/// a line end before its first record. A prefix of `most` bytes always decides about a list.
pub(crate) fn recognize(prefix: &[u8], is_whole: bool, most: usize) -> Recognition {
    let mut scanner = Scanner::new();
    let (mut examined, mut has_phase, mut is_separated) = (0, false, false);
    let (mut is_damaged, mut end) = (false, 0);
    let of_prefix = |at| usize::try_from(at).unwrap_or(usize::MAX);
    let _flow = scanner.scan(prefix, &mut |found| {
        match found {
            Found::Record(range) => {
                let bytes = prefix.get(of_prefix(range.start)..of_prefix(range.end));
                has_phase |= bytes.is_some_and(record::has_phase);
                end = of_prefix(range.end);
                examined += 1;
            }
            Found::Boundary(_) => is_separated = true,
            Found::Lenient { .. } => {}
            Found::Damage(_) => {
                is_damaged = true;
                return ControlFlow::Break(());
            }
        }
        if (has_phase && is_separated) || examined >= EVENTS_EXAMINED {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let is_open = !is_whole && !is_damaged;
    if scanner.is_object() {
        return if scanner.has_list() {
            Recognition::Chrome
        } else if is_open && !scanner.is_closed() {
            Recognition::Undecided
        } else {
            Recognition::Other
        };
    }
    if !scanner.has_list() {
        return Recognition::Other;
    }
    let is_on_line_of_bracket = |at: usize| {
        let before = prefix.get(..at).unwrap_or_default();
        !before.trim_ascii_start().contains(&b'\n')
    };
    let is_closed = !is_damaged && scanner.is_closed();
    if examined > 0 {
        let is_one_line = is_closed && is_on_line_of_bracket(end);
        let is_list = is_separated || scanner.follows_comma() || is_one_line;
        return if has_phase && is_list {
            Recognition::Chrome
        } else {
            Recognition::Other
        };
    }
    let first = scanner.open_record().map(of_prefix);
    match first.filter(|first| is_open && is_on_line_of_bracket(*first)) {
        // The first event is longer than the prefix.
        Some(_) if prefix.len() >= most => Recognition::Chrome,
        Some(_) => Recognition::Undecided,
        None if is_whole && is_closed => Recognition::Chrome,
        None => Recognition::Other,
    }
}
