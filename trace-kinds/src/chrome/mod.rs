//! Chrome trace JSON: `{"traceEvents": [...]}`, or the list alone.
//!
//! | step | where |
//! | --- | --- |
//! | where events begin and end, in bounded memory | [`Scanner`] |
//! | a file in packets, cut between events | [`PacketReader`] |
//!
//! The packets of a file are consecutive ranges of its bytes. Every packet but the first starts
//! with the comma after an event, or after a member of the document behind the list of events, so
//! each packet can be decoded alone (`docs/decisions/0055-chrome-traces.md`).

mod found;
mod reader;
mod scanner;

pub use found::{Damage, Found};
pub use reader::{Packet, PacketReader, ReadError};
pub use scanner::Scanner;

use std::io::{self, Read};

use crate::Container;

/// Bytes of the packets that files are cut into by default, by pushes and queries alike: durations
/// of begin events depend on the packets.
pub const PACKET_BYTES: usize = 1 << 20;

/// Bytes between two places where a file can be cut: the longest event.
pub const EVENT_BYTES_MAX: usize = 32 << 20;

/// Largest window of zstd, as its logarithm: the most that `zstd --long` uses by default.
const WINDOW_LOG_MAX: u32 = 27;

/// The text of a trace in a container, decompressed while it is read.
///
/// # Errors
///
/// When decompressing cannot begin.
pub fn text_of<'r>(
    container: Container,
    source: impl Read + Send + 'r,
) -> io::Result<Box<dyn Read + Send + 'r>> {
    Ok(match container {
        Container::Plain => Box::new(source),
        Container::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
        Container::Zstd => {
            let mut text = zstd::Decoder::new(source)?;
            text.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(text)
        }
    })
}
