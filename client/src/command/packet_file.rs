//! Reads an exported I/O trace of a server packet by packet.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use trace_kinds::io_trace::{PREAMBLE_BYTES, packet_bytes};

use crate::command::CommandError;
use crate::file_content::check_regular;

/// Maximum size of a packet. A server writes packets of half a mebibyte.
const PACKET_BYTES_MAX: u64 = 64 << 20;

/// The stream file in the folder of an exported I/O trace.
pub(in crate::command) const STREAM_FILE: &str = "stream";

/// A stream file that is read packet by packet.
pub(in crate::command) struct PacketFile {
    path: PathBuf,
    file: BufReader<File>,
}

impl PacketFile {
    /// Opens the stream file at `path`, or in the exported folder at `path`.
    pub(in crate::command) fn open(path: &Path) -> Result<Self, CommandError> {
        let path = if path.is_dir() {
            path.join(STREAM_FILE)
        } else {
            path.to_owned()
        };
        check_regular(&path)?;
        let file = File::open(&path).map_err(|error| CommandError::io(path.display(), error))?;
        Ok(Self {
            file: BufReader::new(file),
            path,
        })
    }

    /// The next packet. Of a packet that is cut off, the bytes that exist are returned.
    pub(in crate::command) fn next_packet(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        let mut packet = Vec::new();
        self.take(PREAMBLE_BYTES as u64, &mut packet)?;
        if packet.is_empty() {
            return Ok(None);
        }
        // If the length is missing, decoding reports what is wrong.
        if let Some(length) = packet_bytes(&packet) {
            if length > PACKET_BYTES_MAX {
                let what = format!(
                    "a packet has {length} bytes, more than the limit of {PACKET_BYTES_MAX}"
                );
                return Err(CommandError::damage(self.path.display(), what));
            }
            self.take(length.saturating_sub(packet.len() as u64), &mut packet)?;
        }
        Ok(Some(packet))
    }

    fn take(&mut self, length: u64, packet: &mut Vec<u8>) -> Result<(), CommandError> {
        let read = (&mut self.file).take(length).read_to_end(packet);
        read.map(|_| ())
            .map_err(|error| CommandError::io(self.path.display(), error))
    }
}
