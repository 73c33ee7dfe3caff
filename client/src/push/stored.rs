//! What a storage has of a data stream file of a CTF trace.
//!
//! Its packets are cut as its metadata says, or the index beside it. Both may be others when the
//! file is pushed again: with better metadata, what was sent as one packet is many. Resuming
//! therefore goes by the bytes that are stored, not by the number of packets.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use storage_format::limits::PACKET_BYTES_MAX;
use uuid::Uuid;

use crate::ClientError;
use crate::http::{Client, PacketProvenance, PushTarget};

/// The packets of a file that a storage has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredPart {
    /// Their lengths, by sequence.
    lengths: Vec<u64>,
}

impl StoredPart {
    /// The packets of a stream before `next`; `None` if the server does not let this agent read.
    ///
    /// # Errors
    /// If some are missing, so that it is not known where the next one begins, or if the file
    /// begins with other bytes.
    pub(super) async fn find(
        client: &Client,
        (storage, target): (Uuid, &PushTarget),
        (epoch, next): (u64, u64),
        path: &Path,
    ) -> Result<Option<Self>, ClientError> {
        let mut found = BTreeMap::new();
        let of_stream = (Some(&*target.agent), Some(&*target.stream));
        let add = |packet: crate::http::PacketInfo| {
            if packet.epoch == epoch && packet.sequence < next {
                found.insert(packet.sequence, (packet.number, packet.raw_size));
            }
            Ok(())
        };
        let listed = client.each_descriptor(storage, of_stream, false, add);
        match listed.await {
            Err(error) if error.problem().is_some_and(|it| it.status == 403) => return Ok(None),
            listed => listed?,
        }
        let (known, path_text) = (found.len() as u64, path.display().to_string());
        if known < next {
            let what = format!(
                "the storage has lost {} of the {next} packets of this file that it had, so it is \
                 not known where the rest begins; push the folder under another name with \
                 --agent, or into another storage",
                next - known
            );
            return Err(ClientError::damaged(path_text, what));
        }
        let last = found.last_key_value().map(|(_, last)| *last);
        let stored = Self {
            lengths: found.into_values().map(|(_, length)| length).collect(),
        };
        if let Some((number, length)) = last {
            let bytes_max = length.min(PACKET_BYTES_MAX.into());
            // A packet that cannot be read now says nothing about the file.
            if let Ok(bytes) = client.packet(storage, number, bytes_max).await
                && !has_at(path, stored.bytes() - length, &bytes)?
            {
                let what = "the file differs from what was pushed before, although the time of \
                            its last change is the same; push the folder under another name with \
                            --agent, or into another storage";
                return Err(ClientError::damaged(path_text, what));
            }
        }
        Ok(Some(stored))
    }

    /// Their bytes: the beginning of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// Where they are in the file.
    pub(super) fn packets(&self) -> Vec<PacketProvenance> {
        let mut offset = 0;
        let packet = |(sequence, length): (u64, &u64)| {
            let packet = PacketProvenance {
                sequence,
                offset,
                bytes: *length,
                first_line: 0,
                lines: 0,
            };
            offset += length;
            packet
        };
        (0..).zip(&self.lengths).map(packet).collect()
    }
}

/// Whether a file has these bytes at this offset.
fn has_at(path: &Path, offset: u64, expected: &[u8]) -> Result<bool, ClientError> {
    let mut bytes = vec![0; expected.len()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
    match read {
        Ok(()) => Ok(bytes == expected),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(ClientError::file(path, error)),
    }
}
