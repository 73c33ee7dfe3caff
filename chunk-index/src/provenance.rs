//! Provenance: the source files of packets, in the sidecar `.pidx`.
//!
//! ```text
//! header and trailer as those of an `.idx`, with the magic "THLDPRV\0"
//! footer  owner: text
//!         sources: list of (path: text, identity as in an `.idx`)
//!         groups: list of (name: text, predicate: text)
//!         segments: list of (chunk - chunk before (signed), source, group + 1 or 0,
//!           offset - end before in the source (signed), length, first line - end before (signed),
//!           lines, events)
//! ```

use crate::chunk::Identity;
use crate::sidecar::{
    SidecarError, Signature, Trailer, closed, damaged, header, put_identity, take_identity,
};
use crate::wire::{Damage, Reader, put_signed, put_text, put_varint};

pub(crate) const SIGNATURE: Signature = Signature {
    magic: *b"THLDPRV\0",
    version: 1,
};

/// Which original files the chunks of a file came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The file that contains the chunks, as its writer names it, to tell it from other files.
    pub owner: String,
    /// The original files.
    pub sources: Vec<SourceFile>,
    /// The groups by which events were reorganized.
    pub groups: Vec<SourceGroup>,
    /// The segments, ordered by chunk, and within a chunk by their position in it.
    pub segments: Vec<Segment>,
}

/// An original file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path or address, as the producer reported it.
    pub path: String,
    /// Its length, time and checksum.
    pub identity: Identity,
}

/// A group of events by which a file was reorganized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceGroup {
    /// Its name.
    pub name: String,
    /// The query that the events of the group match.
    pub predicate: String,
}

/// A range of bytes and lines of an original file that is now in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The chunk it is in.
    pub chunk: u64,
    /// Index of the file in [`Provenance::sources`].
    pub source: u32,
    /// Index of the group in [`Provenance::groups`], if there are groups.
    pub group: Option<u32>,
    /// Offset of its bytes in the decoded content of the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Its first line in the file, from 0.
    pub first_line: u64,
    /// Number of lines.
    pub lines: u64,
    /// Number of events.
    pub events: u64,
}

impl Provenance {
    /// The segments of a chunk.
    pub fn of_chunk(&self, chunk: u64) -> &[Segment] {
        let begin = self
            .segments
            .partition_point(|segment| segment.chunk < chunk);
        let end = self
            .segments
            .partition_point(|segment| segment.chunk <= chunk);
        &self.segments[begin..end]
    }

    /// The bytes of the sidecar.
    ///
    /// # Errors
    /// [`SidecarError::TooLarge`] beyond some millions of segments.
    ///
    /// # Panics
    /// When a segment refers to a source or a group that does not exist, or segments are not
    /// ordered by chunk.
    pub fn encode(&self) -> Result<Vec<u8>, SidecarError> {
        assert!(
            self.segments.is_sorted_by_key(|segment| segment.chunk),
            "segments are ordered by chunk"
        );
        let mut out = Vec::new();
        put_text(&mut out, self.owner.as_bytes());
        put_varint(&mut out, self.sources.len() as u64);
        for source in &self.sources {
            put_text(&mut out, source.path.as_bytes());
            put_identity(&mut out, &source.identity);
        }
        put_varint(&mut out, self.groups.len() as u64);
        for group in &self.groups {
            put_text(&mut out, group.name.as_bytes());
            put_text(&mut out, group.predicate.as_bytes());
        }
        put_varint(&mut out, self.segments.len() as u64);
        let mut chunk = 0;
        let mut ends = vec![(0_u64, 0_u64); self.sources.len()];
        for segment in &self.segments {
            let group = segment.group.map_or(0, |group| u64::from(group) + 1);
            assert!(
                group <= self.groups.len() as u64,
                "a segment is of a group that is there"
            );
            let ends = ends
                .get_mut(segment.source as usize)
                .expect("a segment refers to an existing source");
            put_varint(&mut out, segment.chunk - chunk);
            chunk = segment.chunk;
            put_varint(&mut out, u64::from(segment.source));
            put_varint(&mut out, group);
            put_signed(&mut out, segment.offset.wrapping_sub(ends.0).cast_signed());
            put_varint(&mut out, segment.length);
            put_signed(
                &mut out,
                segment.first_line.wrapping_sub(ends.1).cast_signed(),
            );
            put_varint(&mut out, segment.lines);
            put_varint(&mut out, segment.events);
            let after = |start: u64, count| start.checked_add(count);
            *ends = after(segment.offset, segment.length)
                .zip(after(segment.first_line, segment.lines))
                .expect("a segment ends before 2^64");
        }
        closed(SIGNATURE, header(SIGNATURE), out)
    }

    /// Reads a sidecar.
    ///
    /// # Errors
    /// When the bytes are not a sidecar, have another version, or are damaged.
    pub fn read(file: &[u8]) -> Result<Provenance, SidecarError> {
        let length = file.len() as u64;
        if !file.starts_with(&header(SIGNATURE)) {
            return Err(SidecarError::NotAnIndex(
                "its first bytes are not those of one",
            ));
        }
        let trailer = Trailer::read(SIGNATURE, file, length)?;
        let Ok(footer) = trailer.footer(file, length)? else {
            return Err(SidecarError::NotAnIndex(
                "its footer begins before the file",
            ));
        };
        decode(&footer).map_err(|reason| damaged("the footer", trailer.offset, reason))
    }
}

pub(crate) fn decode(footer: &[u8]) -> Result<Provenance, Damage> {
    let mut reader = Reader::new(footer);
    let text = |reader: &mut Reader<'_>| {
        let text = std::str::from_utf8(reader.text()?).map_err(|_| Damage("text is not UTF-8"))?;
        Ok(text.to_owned())
    };
    let mut provenance = Provenance {
        owner: text(&mut reader)?,
        ..Provenance::default()
    };
    for _ in 0..reader.length(4)? {
        provenance.sources.push(SourceFile {
            path: text(&mut reader)?,
            identity: take_identity(&mut reader)?,
        });
    }
    for _ in 0..reader.length(2)? {
        provenance.groups.push(SourceGroup {
            name: text(&mut reader)?,
            predicate: text(&mut reader)?,
        });
    }
    let mut chunk = 0_u64;
    let mut ends = vec![(0_u64, 0_u64); provenance.sources.len()];
    for _ in 0..reader.length(8)? {
        let beyond = Damage("range out of range");
        chunk = chunk.checked_add(reader.varint()?).ok_or(beyond)?;
        let source = u32::try_from(reader.varint()?).map_err(|_| beyond)?;
        let group = match reader.varint()?.checked_sub(1) {
            None => None,
            Some(group) if group < provenance.groups.len() as u64 => {
                Some(u32::try_from(group).map_err(|_| beyond)?)
            }
            Some(_) => return Err(Damage("segment with an unknown group")),
        };
        let ends = ends
            .get_mut(source as usize)
            .ok_or(Damage("segment with an unknown source"))?;
        let offset = ends.0.checked_add_signed(reader.signed()?).ok_or(beyond)?;
        let length = reader.varint()?;
        let first_line = ends.1.checked_add_signed(reader.signed()?).ok_or(beyond)?;
        let lines = reader.varint()?;
        *ends = (
            offset.checked_add(length).ok_or(beyond)?,
            first_line.checked_add(lines).ok_or(beyond)?,
        );
        provenance.segments.push(Segment {
            chunk,
            source,
            group,
            offset,
            length,
            first_line,
            lines,
            events: reader.varint()?,
        });
    }
    reader.end()?;
    Ok(provenance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Provenance {
        let segment = |chunk, source, group, offset| Segment {
            chunk,
            source,
            group,
            offset,
            length: 100,
            first_line: offset / 10,
            lines: 10,
            events: 9,
        };
        Provenance {
            owner: "leaf 7".to_owned(),
            sources: ["a.pfw.gz", "b.pfw.gz"]
                .map(|path| SourceFile {
                    path: path.to_owned(),
                    identity: Identity {
                        length: 5,
                        modified: Some(-7),
                        checksum: Some(u64::MAX),
                    },
                })
                .into(),
            groups: vec![SourceGroup {
                name: "IO".to_owned(),
                predicate: "cat == 'POSIX'".to_owned(),
            }],
            segments: vec![
                segment(0, 0, Some(0), 0),
                segment(0, 1, Some(0), 0),
                segment(2, 0, None, 500),
                segment(2, 0, None, 100),
            ],
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        let provenance = sample();
        let bytes = provenance.encode().unwrap();
        assert_eq!(Provenance::read(&bytes), Ok(provenance.clone()));
        assert_eq!(provenance.of_chunk(2), &provenance.segments[2..]);
        assert_eq!(provenance.of_chunk(1), &[]);
    }

    proptest! {
        #[test]
        fn no_change_of_a_byte_goes_unnoticed(
            at in any::<proptest::sample::Index>(),
            flip in 1_u8..,
        ) {
            let mut bytes = sample().encode().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Provenance::read(&bytes).is_err(), "byte {}", at);
        }
    }
}
