//! The packets of one file, put together again.

use std::io::Read;

use chunk_index::SourceFile;
use storage_format::Kind;
use trace_kinds::gzip::{Inflater, PiecePacket, is_gzip, is_piece};
use trace_kinds::otlp::is_json;
use trace_kinds::rocksdb::TraceHeader;
use trace_kinds::{Container, DamagedBytes};

use super::packet::{ExportStream, FileRange, PacketSource, read};
use super::report::{ExportedFile, Fidelity};
use super::target::{AgentFolder, Output};
use super::version::{Missing, Version};
use super::{ExportOptions, SpanForm, otlp};
use crate::ClientError;

/// Endings of the names of compressed files; what is stored of some of them is their text.
const COMPRESSED_ENDINGS: [&str; 4] = [".gz", ".gzip", ".zst", ".zstd"];
/// Endings of the names of files of JSON.
const JSON_ENDINGS: [&str; 3] = [".json", ".jsonl", ".ndjson"];
/// Text of a member of gzip that is decompressed.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// Writes the packets of one file, and compares it with what its producer reported.
pub(super) fn export(
    source: &dyn PacketSource,
    stream: &ExportStream,
    version: &Version<'_>,
    folder: &mut AgentFolder,
    name: &str,
    options: &ExportOptions,
) -> Result<ExportedFile, ClientError> {
    let (mut written, mut output) = write(source, stream, version, folder.begin()?, false)?;
    // A compressed file of which some packets are compressed and some are text, or one of spans of
    // which some requests lack spans, and are not in its form.
    let is_mixed = written.members > 0 && written.members + written.damaged < written.packets;
    if is_mixed || written.rewritten > 0 {
        // The next one has the same path.
        drop(output);
        (written, output) = write(source, stream, version, folder.begin()?, true)?;
        written.members = 0;
    }
    let mut name = name.to_owned();
    let (length, is_exact) = (output.length, written.is_exact(version, &output));
    if !is_exact && let Some(text) = text_name(stream, &written, &name) {
        name = folder.reserve(text);
        folder.check(&name, options.force)?;
        written.is_text = true;
    }
    let is_json = JSON_ENDINGS.iter().any(|ending| name.ends_with(ending));
    if written.rewritten > 0 && !is_json {
        name = folder.reserve(&format!("{name}.jsonl"));
        folder.check(&name, options.force)?;
    }
    let path = output.finish(&name)?;
    let (fidelity, note) = written.verdict(version, length, is_exact);
    Ok(ExportedFile {
        path,
        origin: version.file.map(|file| file.path.clone()),
        agent: stream.agent.to_string(),
        stream: stream.stream.to_string(),
        kind: stream.kind,
        packets: written.packets,
        packet_bytes: written.packet_bytes,
        bytes: length,
        fidelity,
        note,
    })
}

/// The name of the text of a compressed file, if its text is what was stored.
fn text_name<'n>(stream: &ExportStream, written: &Written, name: &'n str) -> Option<&'n str> {
    let is_of_text = matches!(stream.kind, Kind::Dft | Kind::Chrome | Kind::Otlp);
    let mut endings = COMPRESSED_ENDINGS.iter();
    let text = endings.find_map(|ending| name.strip_suffix(ending));
    text.filter(|text| is_of_text && written.members == 0 && !text.is_empty())
}

/// What was written of a file.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) packets: u64,
    pub(super) packet_bytes: u64,
    /// Packets that are members of gzip, or pieces of one.
    members: u64,
    /// Packets of bytes that cannot be read, and are not compressed.
    damaged: u64,
    /// What is not in any packet: the first of those that only say so.
    lost: Option<String>,
    /// Requests that are not as they were in the file: a copy has some of their spans.
    rewritten: u64,
    pub(super) missing: Missing,
    /// Whether the bytes up to the length that the producer reported have its checksum.
    has_prefix: bool,
    is_text: bool,
}

impl Written {
    /// Counts a packet of bytes that cannot be read, and returns them.
    fn add_damaged(
        &mut self,
        damaged: DamagedBytes<'_>,
        (kind, origin): (Kind, Option<FileRange>),
        as_text: bool,
    ) -> Result<Vec<u8>, String> {
        let bytes = damaged.bytes();
        if bytes.is_empty() {
            self.lost.get_or_insert_with(|| damaged.reason());
        }
        // Compressed bytes have no place in the text of their file.
        let is_compressed = match origin {
            _ if bytes.is_empty() => false,
            Some(range) => range.bytes == 0,
            None => kind == Kind::Dft,
        };
        if is_compressed {
            self.members += 1;
        } else {
            self.damaged += 1;
        }
        if as_text && (is_compressed || bytes.is_empty()) {
            return Err(damaged.reason());
        }
        Ok(bytes.to_vec())
    }

    pub(super) fn is_exact(&self, version: &Version<'_>, output: &Output) -> bool {
        let is_whole = |file: &SourceFile| file.identity.length == output.length;
        self.missing.is_empty() && self.has_prefix && version.file.is_some_and(is_whole)
    }

    /// How the file compares with the one that was pushed.
    fn verdict(
        &self,
        version: &Version<'_>,
        length: u64,
        is_exact: bool,
    ) -> (Fidelity, Option<String>) {
        if is_exact {
            return (Fidelity::Exact, None);
        }
        if !self.missing.is_empty() {
            return (Fidelity::Incomplete, Some(self.missing.to_string()));
        }
        if self.rewritten > 0 {
            let note = format!(
                "{} of the {} requests lack spans that were in the file that was pushed; all are \
                 written as lines of JSON",
                self.rewritten, self.packets
            );
            return (Fidelity::Incomplete, Some(note));
        }
        if self.is_text {
            if let Some(lost) = &self.lost {
                let note = format!(
                    "this is the text of the compressed file that was pushed, as far as it could \
                     be read then: {lost}"
                );
                return (Fidelity::Incomplete, Some(note));
            }
            let note = "this is the text of the compressed file that was pushed; its compressed \
                        bytes are not stored";
            return (Fidelity::Text, Some(note.to_owned()));
        }
        let unknown = |what: &str| {
            let note = format!("{what}, so the bytes are not verified");
            (Fidelity::Unverified, Some(note))
        };
        let Some(file) = version.file else {
            return unknown("the file that was pushed is not known");
        };
        let reported = file.identity.length;
        if length < reported {
            let note = format!(
                "the last {} bytes of the file are missing",
                reported - length
            );
            (Fidelity::Incomplete, Some(note))
        } else if file.identity.checksum.is_none() {
            unknown("the checksum of the file is not known")
        } else if self.has_prefix {
            unknown("the end of the file was pushed without being described")
        } else {
            let note = "the bytes do not match the checksum of the file that was pushed";
            (Fidelity::Incomplete, Some(note.to_owned()))
        }
    }
}

/// Writes the packets of a file; with `as_text` the text of gzip members, and spans as JSON. What
/// cannot be read is skipped and noted.
pub(super) fn write(
    source: &dyn PacketSource,
    stream: &ExportStream,
    version: &Version<'_>,
    mut output: Output,
    as_text: bool,
) -> Result<(Written, Output), ClientError> {
    let mut written = Written {
        missing: version.missing(),
        ..Written::default()
    };
    let identity = version.file.map(|file| file.identity);
    for packet in version.packets {
        let content = read(source, packet)?.and_then(|bytes| {
            written.packets += 1;
            written.packet_bytes += bytes.len() as u64;
            if let Some(damaged) = damaged_bytes(stream.kind, &bytes) {
                return written.add_damaged(damaged, (stream.kind, packet.origin), as_text);
            }
            written.members += u64::from(is_compressed(stream.kind, &bytes));
            written.rewritten += u64::from(is_rewritten(stream.kind, &bytes, packet.origin));
            content(stream.kind, bytes, packet.origin, as_text)
        });
        match content {
            Ok(bytes) => output.write(&bytes)?,
            Err(what) => {
                let position = packet.position;
                written
                    .missing
                    .add(|| format!("packet {} is missing: {what}", position.sequence));
            }
        }
        let is_there = |length: u64, checksum: u64| {
            output.length == length && u64::from(output.checksum) == checksum
        };
        let reported = identity.and_then(|known| Some((known.length, known.checksum?)));
        written.has_prefix |= reported.is_some_and(|(length, sum)| is_there(length, sum));
    }
    Ok((written, output))
}

/// What a packet has of a file that cannot be read.
fn damaged_bytes(kind: Kind, packet: &[u8]) -> Option<DamagedBytes<'_>> {
    match kind {
        Kind::Ctf | Kind::Raw | Kind::IoTrace => None,
        _ => DamagedBytes::decode(packet),
    }
}

/// Whether a packet is compressed as its file is.
fn is_compressed(kind: Kind, packet: &[u8]) -> bool {
    match kind {
        Kind::Dft => is_gzip(packet) || is_piece(packet),
        Kind::Chrome => is_piece(packet),
        _ => false,
    }
}

/// Whether a packet of spans is another request than the one in its file: a copy writes those that
/// lack spans in protobuf. Of a compressed file, lines are stored without their ends.
fn is_rewritten(kind: Kind, packet: &[u8], origin: Option<FileRange>) -> bool {
    let length = packet.len() as u64;
    let is_own = |range: FileRange| range.bytes == length || has_length_before(range, packet);
    kind == Kind::Otlp && !is_json(packet) && origin.is_some_and(|range| !is_own(range))
}

/// Whether a request in protobuf follows its length in the file.
fn has_length_before(range: FileRange, packet: &[u8]) -> bool {
    range.bytes == packet.len() as u64 + 4 && !is_json(packet)
}

/// The bytes of the file that a packet contains.
fn content(
    kind: Kind,
    mut packet: Vec<u8>,
    origin: Option<FileRange>,
    as_text: bool,
) -> Result<Vec<u8>, String> {
    match kind {
        Kind::RocksdbIo | Kind::RocksdbBlockCache => {
            let (header, length) = TraceHeader::read(&packet).map_err(|error| error.to_string())?;
            if header.continuation.is_some() {
                packet.drain(..length.min(packet.len()));
            }
            Ok(packet)
        }
        Kind::Otlp if as_text => otlp::encoded(&packet, SpanForm::JsonLines),
        Kind::Otlp => {
            let prefix = u32::try_from(packet.len()).map_err(|error| error.to_string())?;
            if origin.is_some_and(|range| has_length_before(range, &packet)) {
                packet.splice(0..0, prefix.to_be_bytes());
            }
            Ok(packet)
        }
        Kind::Dft | Kind::Chrome if is_piece(&packet) => {
            let piece = PiecePacket::decode(&packet).map_err(|error| error.to_string())?;
            if !as_text {
                return Ok(piece.own_bytes().to_vec());
            }
            let text = piece.text(&mut Inflater::default());
            text.map_err(|error| error.to_string())
        }
        Kind::Dft if as_text && is_gzip(&packet) => {
            let mut text = Vec::new();
            let members = Container::Gzip.text_of(&*packet);
            let read =
                members.and_then(|members| members.take(TEXT_BYTES_MAX).read_to_end(&mut text));
            // The last member of a file whose producer was killed is torn; its text is kept.
            match read {
                Err(error) if text.is_empty() => Err(error.to_string()),
                _ => Ok(text),
            }
        }
        _ => Ok(packet),
    }
}
