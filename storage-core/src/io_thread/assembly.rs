//! Assembles a batch: segments of the leaves, headers of frames, checksums.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use storage_format::{
    LeafId, StorageId,
    data_file::HEADER_BYTES as LEAF_HEADER_BYTES,
    frame::{ALIGNMENT, FrameLocation, HEADER_BYTES},
    index_part::{Extent, LogPosition},
    log::{BATCH_HEADER_BYTES, BatchHeader, BatchLocation, SEGMENT_HEADER_BYTES, SegmentHeader},
};

use super::{Appended, Tail, request::Append, tail::LoggedLeaf};

/// Where a batch goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchPlace {
    pub(super) storage: StorageId,
    pub(super) position: LogPosition,
    pub(super) salt: u64,
    pub(super) durable_mark: u64,
}

/// A piece of a batch.
pub(super) struct Piece<'a> {
    pub(super) bytes: PieceBytes<'a>,
    /// The request that sent it, for the I/O trace.
    pub(super) request: Option<&'a Arc<str>>,
}

pub(super) enum PieceBytes<'a> {
    /// Headers and padding, in [`Batch::headers`].
    Headers(Range<usize>),
    /// A stored payload and its CRC32C.
    Payload(&'a Bytes, u32),
}

/// A batch that is ready to be written.
pub(super) struct Batch<'a> {
    pub(super) head: [u8; BATCH_HEADER_BYTES],
    pub(super) header: BatchHeader,
    /// The bytes after the batch header, without the payloads.
    pub(super) headers: Vec<u8>,
    pub(super) pieces: Vec<Piece<'a>>,
    /// What each append gets when it is durable.
    pub(super) appended: Vec<Appended>,
    /// The leaves after this batch.
    pub(super) leaves: Vec<(LeafId, LoggedLeaf)>,
}

impl Batch<'_> {
    /// The position after this batch.
    pub(super) fn end(&self, place: &BatchPlace) -> LogPosition {
        let offset = place.position.offset;
        LogPosition {
            file: place.position.file,
            offset: offset.saturating_add(self.header.padded_length()),
            batch: self.header.number.saturating_add(1),
            chain: BatchHeader::checksum_of(&self.head),
        }
    }
}

/// The appends of one leaf, which become one segment.
struct OfLeaf {
    leaf: LeafId,
    appends: Vec<usize>,
}

/// Groups appends by leaf; those of a leaf remain in order.
fn by_leaf(appends: &[Append]) -> Vec<OfLeaf> {
    let mut segments: Vec<OfLeaf> = Vec::new();
    let mut known: HashMap<LeafId, usize> = HashMap::new();
    for (at, append) in appends.iter().enumerate() {
        let leaf = append.leaf.header.leaf;
        let segment = *known.entry(leaf).or_insert(segments.len());
        match segments.get_mut(segment) {
            Some(segment) => segment.appends.push(at),
            None => segments.push(OfLeaf {
                leaf,
                appends: vec![at],
            }),
        }
    }
    segments
}

struct Assembler<'a> {
    place: BatchPlace,
    appends: &'a [Append],
    headers: Vec<u8>,
    pieces: Vec<Piece<'a>>,
    /// Start of the headers that are not in a piece yet.
    open: usize,
    payload_bytes: u64,
    appended: Vec<Option<Appended>>,
}

/// Assembles the batch of `appends` at `place`; `known` gives the state of a leaf.
pub(super) fn assemble<'a>(
    appends: &'a [Append],
    place: BatchPlace,
    known: impl Fn(LeafId) -> Option<LoggedLeaf>,
) -> Batch<'a> {
    assert!(!appends.is_empty(), "a batch has packets");
    let mut assembler = Assembler {
        place,
        appends,
        headers: Vec::new(),
        pieces: Vec::new(),
        open: 0,
        payload_bytes: 0,
        appended: appends.iter().map(|_| None).collect(),
    };
    let segments = by_leaf(appends);
    let count = segments.len();
    let mut leaves = Vec::with_capacity(count);
    for segment in &segments {
        leaves.push((
            segment.leaf,
            assembler.segment(segment, known(segment.leaf)),
        ));
    }
    assembler.close_piece(None);
    let length = (BATCH_HEADER_BYTES as u64)
        .saturating_add(assembler.headers.len() as u64)
        .saturating_add(assembler.payload_bytes);
    let header = BatchHeader {
        segments: u32::try_from(count).expect("a write has a bounded number of appends"),
        salt: place.salt,
        number: place.position.batch,
        durable_mark: place.durable_mark,
        length,
        headers_checksum: storage_format::checksum::crc32c(&assembler.headers),
        chain: place.position.chain,
    };
    let head = header.encode(BatchLocation {
        storage: place.storage,
        file: place.position.file,
        offset: place.position.offset,
    });
    let appended = assembler
        .appended
        .into_iter()
        .map(|appended| appended.expect("every append is in one segment"));
    Batch {
        head,
        header,
        appended: appended.collect(),
        headers: assembler.headers,
        pieces: assembler.pieces,
        leaves,
    }
}

impl<'a> Assembler<'a> {
    /// Adds a segment; returns the state of its leaf after it.
    fn segment(&mut self, segment: &OfLeaf, known: Option<LoggedLeaf>) -> LoggedLeaf {
        let appends = self.appends;
        let of_segment = || segment.appends.iter().filter_map(|&at| appends.get(at));
        let spec = of_segment().next().map(|append| &append.leaf);
        let spec = spec.expect("a segment has an append");
        let file = self.place.position.file;
        let known = known.unwrap_or(LoggedLeaf {
            tail: spec.recovered.unwrap_or_default(),
            declared_in: None,
        });
        let mut tail = known.tail;
        let is_new = tail == Tail::default();
        let repeats = !is_new && known.declared_in != Some(file);
        let frames: u64 = of_segment().map(Append::bytes).sum();
        let first_header = if is_new { LEAF_HEADER_BYTES as u64 } else { 0 };
        let header = SegmentHeader {
            leaf: segment.leaf,
            repeats_leaf_header: repeats,
            leaf_offset: tail.length,
            length: frames.saturating_add(first_header),
        };
        self.headers.extend_from_slice(&header.encode());
        if repeats {
            self.headers.extend_from_slice(&spec.header.encode());
        }
        let mut start = tail.length;
        if is_new {
            let bytes = spec.header.encode();
            tail.extend(&bytes);
            self.headers.extend_from_slice(&bytes);
        }
        let mut offset = self.file_offset().saturating_sub(first_header);
        for &at in &segment.appends {
            let offsets = self.frames(at, segment.leaf, &mut tail);
            let length = tail.length.saturating_sub(start);
            let extent = Extent {
                leaf_offset: start,
                file,
                offset,
                length,
            };
            (start, offset) = (tail.length, offset.saturating_add(length));
            if let Some(slot) = self.appended.get_mut(at) {
                *slot = Some(Appended {
                    offsets,
                    tail,
                    extent,
                    log: None,
                });
            }
        }
        assert_eq!(
            tail.length,
            header.leaf_offset.saturating_add(header.length),
            "a segment has the length that its header says"
        );
        LoggedLeaf {
            tail,
            declared_in: Some(file),
        }
    }

    /// Offset in the file of the next byte.
    fn file_offset(&self) -> u64 {
        (self.place.position.offset)
            .saturating_add(BATCH_HEADER_BYTES as u64)
            .saturating_add(self.headers.len() as u64)
            .saturating_add(self.payload_bytes)
    }

    /// Adds the frames of an append; returns the offset of each payload in the leaf.
    fn frames(&mut self, at: usize, leaf: LeafId, tail: &mut Tail) -> Vec<u64> {
        let appends = self.appends;
        let Some(append) = appends.get(at) else {
            return Vec::new();
        };
        let request = append.request.as_ref();
        let mut offsets = Vec::with_capacity(append.frames.len());
        for frame in &append.frames {
            assert_eq!(
                u32::try_from(frame.payload.len()),
                Ok(frame.header.stored_size),
                "a frame header describes its payload"
            );
            let header = frame.header.encode(FrameLocation {
                storage: self.place.storage,
                leaf,
                offset: tail.length,
            });
            tail.extend(&header);
            offsets.push(tail.length);
            self.headers.extend_from_slice(&header);
            self.close_piece(request);
            let checksum = frame.header.stored_checksum;
            tail.extend_summed(&frame.payload, checksum);
            self.pieces.push(Piece {
                bytes: PieceBytes::Payload(&frame.payload, checksum),
                request,
            });
            self.payload_bytes = self
                .payload_bytes
                .saturating_add(frame.payload.len() as u64);
            let used = HEADER_BYTES.saturating_add(frame.payload.len());
            let gap = [0; ALIGNMENT];
            let gap = &gap[..used.next_multiple_of(ALIGNMENT).saturating_sub(used)];
            tail.extend(gap);
            self.headers.extend_from_slice(gap);
        }
        offsets
    }

    /// Makes a piece of the headers since the last one.
    fn close_piece(&mut self, request: Option<&'a Arc<str>>) {
        let end = self.headers.len();
        if end > self.open {
            self.pieces.push(Piece {
                bytes: PieceBytes::Headers(self.open..end),
                request,
            });
            self.open = end;
        }
    }
}

const _: () = assert!(
    SEGMENT_HEADER_BYTES.is_multiple_of(ALIGNMENT) && BATCH_HEADER_BYTES.is_multiple_of(ALIGNMENT),
    "frames are aligned in the data file, too"
);
