//! The bytes of a columns file.

use std::io::{self, Write};
use std::ops::Range;

use super::builder::ChunkColumns;
use super::{ROWS_MAX, SIGNATURE};
use crate::chunk::{Chunk, Identity};
use crate::index::Index;
use crate::sidecar::{
    SidecarError, Trailer, close, damaged, header, pack_fast, put_identity, take_identity, unpack,
};
use crate::wire::{Damage, Reader, put_text, put_varint};

/// Writes a columns file chunk by chunk, and retains only locations.
#[derive(Debug)]
pub struct ColumnsWriter<W> {
    out: W,
    offset: u64,
    names: Vec<String>,
    chunks: Vec<ColumnLocations>,
}

/// The location of one column of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnBlock {
    offset: u64,
    length: u32,
    raw_length: u32,
    checksum: u32,
    rows: usize,
}

/// The locations of the columns of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ColumnLocations {
    raw_offset: u64,
    raw_length: u64,
    events: u64,
    columns: Vec<Option<ColumnBlock>>,
}

/// The columns of a chunk in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsOfChunk<'c> {
    /// Offset of the chunk in the decoded content of the file.
    pub raw_offset: u64,
    /// Bytes of that content.
    pub raw_length: u64,
    /// Events of the chunk.
    pub events: u64,
    /// Each stored column, with its field.
    pub columns: Vec<(&'c str, ColumnBlock)>,
}

impl<W: Write> ColumnsWriter<W> {
    /// Starts a file with columns for `ts`, `dur` and these dimensions.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new<'a>(
        mut out: W,
        dimensions: impl IntoIterator<Item = &'a str>,
    ) -> io::Result<ColumnsWriter<W>> {
        let header = header(SIGNATURE);
        out.write_all(&header)?;
        let names = ["ts", "dur"].into_iter().chain(dimensions);
        Ok(ColumnsWriter {
            out,
            offset: header.len() as u64,
            names: names.map(str::to_owned).collect(),
            chunks: Vec::new(),
        })
    }

    /// Writes the columns of the next chunk.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn chunk(&mut self, chunk: &Chunk, columns: ChunkColumns) -> io::Result<()> {
        let events = columns.events;
        assert_eq!(
            columns.columns.len(),
            self.names.len(),
            "a chunk has a column, or a gap, for each name"
        );
        let mut blocks = Vec::with_capacity(self.names.len());
        for raw in columns.columns {
            let Some((stored, raw_length)) = raw.and_then(|raw| pack_fast(raw).ok()) else {
                blocks.push(None);
                continue;
            };
            self.out.write_all(&stored)?;
            blocks.push(Some(ColumnBlock {
                offset: self.offset,
                length: u32::try_from(stored.len()).expect("a block is far below 4 GiB"),
                raw_length,
                checksum: crc32c::crc32c(&stored),
                rows: usize::try_from(events).expect("rows were in memory"),
            }));
            self.offset += stored.len() as u64;
        }
        self.chunks.push(ColumnLocations {
            raw_offset: chunk.raw_offset,
            raw_length: chunk.raw_length,
            events,
            columns: blocks,
        });
        Ok(())
    }

    /// Completes the columns of the file with this identity, and returns the writer.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(mut self, identity: &Identity) -> io::Result<W> {
        let mut footer = Vec::new();
        put_identity(&mut footer, identity);
        put_varint(&mut footer, self.names.len() as u64);
        for name in &self.names {
            put_text(&mut footer, name.as_bytes());
        }
        put_varint(&mut footer, self.chunks.len() as u64);
        for chunk in &self.chunks {
            for number in [chunk.raw_offset, chunk.raw_length, chunk.events] {
                put_varint(&mut footer, number);
            }
            for column in &chunk.columns {
                let Some(block) = column else {
                    put_varint(&mut footer, 0);
                    continue;
                };
                put_varint(&mut footer, u64::from(block.length) + 1);
                put_varint(&mut footer, u64::from(block.raw_length));
                footer.extend(block.checksum.to_le_bytes());
            }
        }
        let end = close(SIGNATURE, self.offset, footer).map_err(io::Error::other)?;
        self.out.write_all(&end)?;
        Ok(self.out)
    }
}

/// A columns file whose footer was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    identity: Identity,
    names: Vec<String>,
    chunks: Vec<ColumnLocations>,
}

/// The result of reading the last bytes of a file.
#[derive(Debug, Clone)]
pub enum ColumnsOpened {
    /// All that is needed to request columns.
    Columns(Columns),
    /// This many bytes of the end are needed.
    More(u64),
}

impl Columns {
    /// Opens a file of `file_length` bytes from its last bytes.
    ///
    /// # Errors
    /// When the bytes are not a columns file, have another version, or are damaged.
    pub fn open(tail: &[u8], file_length: u64) -> Result<ColumnsOpened, SidecarError> {
        let trailer = Trailer::read(SIGNATURE, tail, file_length)?;
        let footer = match trailer.footer(tail, file_length)? {
            Ok(footer) => footer,
            Err(more) => return Ok(ColumnsOpened::More(more)),
        };
        let columns = decode(&footer, trailer.offset)
            .map_err(|reason| damaged("the footer", trailer.offset, reason))?;
        Ok(ColumnsOpened::Columns(columns))
    }

    /// Opens a file in memory, and verifies every byte of it.
    ///
    /// # Errors
    /// When any part of it is damaged.
    pub fn read(file: &[u8]) -> Result<Columns, SidecarError> {
        if !file.starts_with(&header(SIGNATURE)) {
            let reason = "the header is not that of a columns file";
            return Err(SidecarError::NotAnIndex(reason));
        }
        let ColumnsOpened::Columns(columns) = Columns::open(file, file.len() as u64)? else {
            return Err(damaged("the footer", 0, "it begins before the file"));
        };
        let blocks = columns.chunks.iter().flat_map(|chunk| &chunk.columns);
        for block in blocks.flatten() {
            let index = |at| usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = file.get(index(block.range().start)..index(block.range().end));
            block.unpack(bytes.unwrap_or_default())?;
        }
        Ok(columns)
    }

    /// The identity of the file whose columns these are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The fields that have columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The chunks with their stored columns.
    pub fn chunks(&self) -> impl Iterator<Item = ColumnsOfChunk<'_>> {
        self.chunks.iter().map(|chunk| {
            let columns = self.names.iter().zip(&chunk.columns);
            let there = columns.filter_map(|(name, block)| Some((name.as_str(), (*block)?)));
            ColumnsOfChunk {
                raw_offset: chunk.raw_offset,
                raw_length: chunk.raw_length,
                events: chunk.events,
                columns: there.collect(),
            }
        })
    }

    /// Whether they are columns of the same file and the same chunks as an index.
    pub fn belong_to(&self, index: &Index) -> bool {
        let own = self.chunks.iter();
        let own = own.map(|chunk| (chunk.raw_offset, chunk.raw_length, chunk.events));
        let chunks = index.chunks().iter();
        self.identity == *index.identity()
            && own.eq(chunks.map(|chunk| (chunk.raw_offset, chunk.raw_length, chunk.events)))
    }

    /// Whether there are columns for `ts`, `dur` and all of these dimensions.
    pub fn have<'a>(&self, mut dimensions: impl Iterator<Item = &'a str>) -> bool {
        dimensions.all(|name| self.names.iter().any(|known| known == name))
    }

    /// Events of a chunk.
    pub(super) fn rows(&self, chunk: usize) -> Option<usize> {
        usize::try_from(self.chunks.get(chunk)?.events).ok()
    }

    /// The column of a field in a chunk: whether it is `ts` or `dur`, and its location.
    pub(super) fn block(&self, chunk: usize, field: &str) -> Option<(bool, ColumnBlock)> {
        let column = self.names.iter().position(|name| name == field)?;
        let block = self.chunks.get(chunk)?.columns.get(column)?.as_ref()?;
        Some((column == super::TS || column == super::DUR, *block))
    }
}

impl ColumnBlock {
    /// The bytes of the file that contain the column.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }

    /// Verifies and unpacks the bytes; returns them with the number of rows.
    pub(super) fn unpack(&self, bytes: &[u8]) -> Result<(Vec<u8>, usize), SidecarError> {
        let damage = |reason| self.damaged(reason);
        if bytes.len() != self.length as usize || crc32c::crc32c(bytes) != self.checksum {
            return Err(damage(Damage("checksum differs")));
        }
        Ok((unpack(bytes, self.raw_length).map_err(damage)?, self.rows))
    }

    pub(super) fn damaged(&self, reason: Damage) -> SidecarError {
        damaged("a column", self.offset, reason)
    }
}

/// Reads the body of a footer; the columns end at `body_end`.
pub(crate) fn decode(footer: &[u8], body_end: u64) -> Result<Columns, Damage> {
    let mut reader = Reader::new(footer);
    let identity = take_identity(&mut reader)?;
    let mut names = Vec::new();
    for _ in 0..reader.length(1)? {
        let name = std::str::from_utf8(reader.text()?).map_err(|_| Damage("invalid field name"))?;
        names.push(name.to_owned());
    }
    let times = names.iter().map(String::as_str).take(2);
    if !times.eq(["ts", "dur"]) {
        return Err(Damage("the columns of times are missing"));
    }
    let mut offset = header(SIGNATURE).len() as u64;
    let mut chunks = Vec::new();
    for _ in 0..reader.length(3 + names.len())? {
        let mut chunk = ColumnLocations {
            raw_offset: reader.varint()?,
            raw_length: reader.varint()?,
            events: reader.varint()?,
            columns: Vec::with_capacity(names.len()),
        };
        for _ in &names {
            chunk
                .columns
                .push(take_block(&mut reader, &mut offset, chunk.events)?);
        }
        chunks.push(chunk);
    }
    reader.end()?;
    if offset == body_end {
        Ok(Columns {
            identity,
            names,
            chunks,
        })
    } else {
        Err(Damage("the columns have another length"))
    }
}

fn take_block(
    reader: &mut Reader<'_>,
    offset: &mut u64,
    events: u64,
) -> Result<Option<ColumnBlock>, Damage> {
    let Some(length) = reader.varint()?.checked_sub(1) else {
        return Ok(None);
    };
    let rows = usize::try_from(events)
        .ok()
        .filter(|rows| *rows <= ROWS_MAX);
    let block = ColumnBlock {
        offset: *offset,
        length: u32::try_from(length).map_err(|_| Damage("number too large"))?,
        raw_length: reader.varint32()?,
        checksum: reader.word32()?,
        rows: rows.ok_or(Damage("column with too many rows"))?,
    };
    *offset = offset
        .checked_add(length)
        .ok_or(Damage("range out of range"))?;
    Ok(Some(block))
}
