use std::path::PathBuf;

use serde::Serialize;
use storage_format::Kind;

use super::packet::ExportStream;

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// The folders of CTF traces.
    pub traces: Vec<PathBuf>,
    /// The files, those of traces included.
    pub files: Vec<ExportedFile>,
    /// Number of exported streams.
    pub streams: u64,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Number of matching streams that are not exported, because of their kind.
    pub other_streams: u64,
    /// These streams.
    pub left_out: Vec<LeftOut>,
    /// Number of derived streams that are not exported.
    pub derived_streams: u64,
}

/// A stream that is not exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Agent.
    pub agent: String,
    /// Stream.
    pub stream: String,
    /// Kind.
    pub kind: Kind,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The path from which it was pushed, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Agent.
    pub agent: String,
    /// Stream.
    pub stream: String,
    /// Kind.
    pub kind: Kind,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub packet_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether these are the bytes that were pushed.
    pub fidelity: Fidelity,
    /// What is missing or different, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How a file compares with what was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// The same bytes: length and checksum are the ones that its producer reported.
    Exact,
    /// All packets, one after another; there is nothing to compare them with.
    Unverified,
    /// The text of a compressed file, which is what was stored of it.
    Text,
    /// The packets, converted.
    Converted,
    /// Packets are missing or damaged.
    Incomplete,
}

impl ExportReport {
    pub(super) fn leave_out(&mut self, stream: &ExportStream) {
        self.other_streams += 1;
        self.left_out.push(LeftOut {
            agent: stream.agent.to_string(),
            stream: stream.stream.to_string(),
            kind: stream.kind,
        });
    }

    pub(super) fn add(&mut self, file: ExportedFile) {
        self.packets += file.packets;
        self.bytes += file.packet_bytes;
        // The files of a stream follow each other.
        let is_next = self.files.last().is_none_or(|last| {
            (last.agent.as_str(), last.stream.as_str()) != (&*file.agent, &*file.stream)
        });
        self.streams += u64::from(is_next);
        self.files.push(file);
    }

    /// Whether every file has all of its packets.
    pub fn is_complete(&self) -> bool {
        let mut files = self.files.iter();
        files.all(|file| file.fidelity != Fidelity::Incomplete)
    }
}
