//! Decodes the footer of a sidecar to an index without blocks.

use std::collections::HashSet;
use std::sync::Arc;

use query_language::FieldPath;

use super::block::{Block, BlockKind, KINDS};
use crate::body;
use crate::checkpoint;
use crate::chunk::{Chunk, Identity};
use crate::config::DIMENSIONS_MAX;
use crate::index::{Attachment, BLOCK_CHUNKS, Column, DictionaryState, Dimension, Index};
use crate::wire::{Damage, Reader};

/// Reads the body of a footer.
pub(crate) fn decode(footer: &[u8], file_length: u64) -> Result<(Index, Vec<Block>), Damage> {
    let mut reader = Reader::new(footer);
    let identity = take_identity(&mut reader)?;
    let config_hash = reader.word()?;
    let mut paths = Vec::new();
    for _ in 0..reader.length(1)? {
        let path = std::str::from_utf8(reader.text()?).map_err(|_| Damage("invalid field name"))?;
        paths.push(FieldPath::new(path));
    }
    if paths.len() > DIMENSIONS_MAX {
        return Err(Damage("too many dimensions"));
    }
    let chunks = take_chunks(&mut reader)?;
    let checkpoints = checkpoint::decode(&mut reader, file_length)?;
    let blocks = take_blocks(&mut reader, file_length)?;
    let mut attachments = Vec::new();
    for _ in 0..reader.length(1)? {
        let name =
            std::str::from_utf8(reader.text()?).map_err(|_| Damage("invalid attachment name"))?;
        attachments.push(Attachment {
            name: name.to_owned(),
            bytes: None,
        });
    }
    reader.end()?;
    let count = chunks.len();
    let mut dimensions: Vec<Dimension> = paths
        .into_iter()
        .map(|path| Dimension {
            path,
            limits: Column::absent(count),
            filters: Column::absent(count),
            file_dictionary: DictionaryState::Absent,
        })
        .collect();
    complete_filters(&mut dimensions, &blocks, count);
    for block in blocks
        .iter()
        .filter(|block| block.kind == BlockKind::FileDictionary)
    {
        let dimension = dimensions.get_mut(block.dimension as usize);
        dimension
            .ok_or(Damage("file dictionary of an unknown dimension"))?
            .file_dictionary = DictionaryState::Stored;
    }
    let index = Index {
        identity,
        config_hash,
        statistics: Column::absent(count),
        sketches: vec![false; count.div_ceil(BLOCK_CHUNKS)],
        slowest: Column::absent(count),
        chunks,
        dimensions,
        checkpoints,
        attachments,
    };
    Ok((index, blocks))
}

/// Blocks without filters are not stored; they count as loaded.
fn complete_filters(dimensions: &mut [Dimension], blocks: &[Block], chunks: usize) {
    let written: HashSet<(usize, usize)> = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Filters)
        .map(|block| (block.dimension as usize, block.number as usize))
        .collect();
    let full = Arc::new(vec![None; BLOCK_CHUNKS]);
    for (at, dimension) in dimensions.iter_mut().enumerate() {
        for (number, filters) in dimension.filters.blocks.iter_mut().enumerate() {
            if written.contains(&(at, number)) {
                continue;
            }
            *filters = Some(match chunks - number * BLOCK_CHUNKS {
                rest if rest < BLOCK_CHUNKS => Arc::new(vec![None; rest]),
                _ => Arc::clone(&full),
            });
        }
    }
}

fn take_chunks(reader: &mut Reader<'_>) -> Result<Vec<Chunk>, Damage> {
    let length = reader.length(10)?;
    let mut chunks = Vec::with_capacity(length);
    let (mut end, mut raw_end) = (0, 0);
    for _ in 0..length {
        let (offset, length) = take_step(reader, &mut end)?;
        let (raw_offset, raw_length) = take_step(reader, &mut raw_end)?;
        let mut chunk = Chunk {
            offset,
            length,
            raw_offset,
            raw_length,
            first_line: reader.varint()?,
            lines: reader.varint()?,
            number: reader.varint()?,
            events: reader.varint()?,
            timed: reader.varint()?,
            odd: reader.varint()?,
            times: None,
        };
        chunk.times = body::take_times(reader, chunk.timed)?;
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn take_blocks(reader: &mut Reader<'_>, file_length: u64) -> Result<Vec<Block>, Damage> {
    let length = reader.length(10)?;
    let mut blocks = Vec::with_capacity(length);
    let mut end = 0;
    for _ in 0..length {
        let kind = KINDS
            .get(usize::from(reader.byte()?))
            .ok_or(Damage("unknown kind of block"))?;
        let dimension = reader.varint32()?;
        let number = reader.varint32()?;
        let (offset, length) = take_step(reader, &mut end)?;
        if end > file_length {
            return Err(Damage("block outside of the sidecar"));
        }
        blocks.push(Block {
            kind: *kind,
            dimension,
            number,
            offset,
            length: u32::try_from(length).map_err(|_| Damage("number too large"))?,
            raw_length: reader.varint32()?,
            checksum: reader.word32()?,
        });
    }
    Ok(blocks)
}
fn take_step(reader: &mut Reader<'_>, end: &mut u64) -> Result<(u64, u64), Damage> {
    let offset = end.checked_add_signed(reader.signed()?);
    let offset = offset.ok_or(Damage("range out of range"))?;
    let length = reader.varint()?;
    *end = offset
        .checked_add(length)
        .ok_or(Damage("range out of range"))?;
    Ok((offset, length))
}

pub(crate) fn take_identity(reader: &mut Reader<'_>) -> Result<Identity, Damage> {
    Ok(Identity {
        length: reader.varint()?,
        modified: match reader.byte()? {
            0 => None,
            _ => Some(reader.signed()?),
        },
        checksum: match reader.byte()? {
            0 => None,
            _ => Some(reader.word()?),
        },
    })
}
