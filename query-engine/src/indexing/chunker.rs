//! Packets to chunks with their summaries, for storages and files.

use std::ops::{ControlFlow, Range};

use chunk_index::{Chunk, ChunkBuilder, ChunkSummary, IndexConfig};
use query_language::FieldTable;
use storage_format::Kind;
use trace_kinds::dft::{HashNames, Names, PacketDecoder};
use trace_kinds::gzip::{is_gzip, is_piece};
use trace_kinds::{DecodeError, Decoded, Decoder, Event, StreamContext, decoder_for};

/// How many times its bytes a compressed packet counts. Its text is longer still, but summaries of
/// shorter chunks would take more than two percent of it.
const TEXT_RATIO: u64 = 6;

/// Groups the packets of a stream, in order, into chunks.
pub(crate) struct Chunker {
    builder: ChunkBuilder,
    decoder: Packets,
    /// The open chunk.
    chunk: Chunk,
    chunk_bytes: u64,
    /// Bytes of records in the open chunk.
    record_bytes: u64,
    done: Chunked,
}

/// The chunks of a stream.
#[derive(Default)]
pub(crate) struct Chunked {
    pub(crate) chunks: Vec<(Chunk, ChunkSummary)>,
    pub(crate) decoded: Decoded,
    /// Texts of hashes that DFTracer packets declare.
    pub(crate) names: Option<HashNames>,
}

/// DFTracer packets also declare the texts of hashes.
enum Packets {
    Dft(PacketDecoder),
    Other(Box<dyn Decoder>),
}

impl Chunker {
    /// Chunks of about `chunk_bytes` bytes of records, the first at `raw_offset`; `None` for kinds
    /// without events.
    ///
    /// # Errors
    ///
    /// When the context lacks what the kind needs.
    pub(crate) fn new(
        kind: Kind,
        context: &StreamContext,
        config: &IndexConfig,
        chunk_bytes: u64,
        raw_offset: u64,
    ) -> Result<Option<Chunker>, DecodeError> {
        let mut table = FieldTable::new();
        let builder = ChunkBuilder::new(config.clone(), &mut table);
        let decoder = match kind {
            // Without names, the value of a text field is the text in the record, as it is indexed.
            Kind::Dft => Packets::Dft(PacketDecoder::new(&table, Names::default(), context.unit)),
            kind => match decoder_for(kind, context, &table)? {
                Some(decoder) => Packets::Other(decoder),
                None => return Ok(None),
            },
        };
        Ok(Some(Chunker {
            builder,
            decoder,
            chunk: Chunk {
                raw_offset,
                ..Chunk::default()
            },
            chunk_bytes,
            record_bytes: 0,
            done: Chunked::default(),
        }))
    }

    /// Adds the raw bytes of the packet with this number, whose stored bytes are at `range`.
    pub(crate) fn packet(&mut self, range: Range<u64>, number: u64, packet: &[u8]) {
        let raw = packet.len() as u64;
        let record_bytes = if is_gzip(packet) || is_piece(packet) {
            raw.saturating_mul(TEXT_RATIO)
        } else {
            raw
        };
        if self.chunk.length > 0 && self.record_bytes + record_bytes > self.chunk_bytes {
            self.cut();
        }
        self.record_bytes += record_bytes;
        if self.chunk.length == 0 {
            (self.chunk.offset, self.chunk.number) = (range.start, number);
        }
        self.chunk.length = range.end - self.chunk.offset;
        self.chunk.raw_length += raw;
        let builder = &mut self.builder;
        let mut each = |event: &dyn Event| {
            builder.add(event);
            ControlFlow::Continue(())
        };
        let decoded = match &mut self.decoder {
            Packets::Dft(decoder) => decoder.decode(packet, &mut each),
            Packets::Other(decoder) => {
                decoder.set_position(range.start);
                decoder.decode(packet, &mut each)
            }
        };
        match decoded {
            Ok(decoded) => self.done.decoded += decoded,
            // The events before the error are indexed, as queries read them.
            Err(_) => self.done.decoded.broken += 1,
        }
    }

    /// Counts a part of the stream that is no packet.
    pub(crate) fn broken(&mut self) {
        self.done.decoded.broken += 1;
    }

    fn cut(&mut self) {
        if self.chunk.length == 0 {
            return;
        }
        let next = Chunk {
            raw_offset: self.chunk.raw_offset + self.chunk.raw_length,
            ..Chunk::default()
        };
        self.record_bytes = 0;
        let chunk = std::mem::replace(&mut self.chunk, next);
        self.done.chunks.push((chunk, self.builder.finish()));
    }

    /// The chunks, including the last one.
    pub(crate) fn finish(mut self) -> Chunked {
        self.cut();
        if let Packets::Dft(decoder) = self.decoder {
            self.done.names = Some(decoder.into_declared().names);
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn compressed_packets_count_more_than_their_bytes() {
        let line = b"{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":1,\
            \"dur\":1,\"ph\":\"X\"}\n";
        let text = line.repeat(10);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(&text).unwrap();
        let compressed = encoder.finish().unwrap();
        for (packet, chunks) in [(&text, 2), (&compressed, 12)] {
            let bytes = packet.len() as u64;
            let config = IndexConfig::new(["name"]);
            let context = StreamContext::default();
            let chunker = Chunker::new(Kind::Dft, &context, &config, 6 * bytes, 0);
            let mut chunker = chunker.unwrap().unwrap();
            for number in 0..12 {
                chunker.packet(number * bytes..(number + 1) * bytes, number, packet);
            }
            let chunked = chunker.finish();
            let events = chunked
                .chunks
                .iter()
                .map(|(_, it)| it.statistics.events())
                .sum::<u64>();
            assert_eq!((chunked.chunks.len(), events), (chunks, 120));
        }
    }
}
