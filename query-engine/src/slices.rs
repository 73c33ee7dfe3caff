//! Durations of Chrome slices that begin and end in different packets: found when the first is
//! asked for, and kept in indexes.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use chunk_index::{ChromeUnpaired, Index, StoredMark};
use storage_format::checksum::{crc32c, crc32c_append};
use trace_kinds::chrome::{
    Durations, MARKS_MAX, MarkKind, OutsideDurations, Unpaired, UnpairedMark,
};

/// Durations that are found when the first is asked for.
pub(crate) struct LazyDurations {
    found: OnceLock<Durations>,
    find: Box<dyn Fn() -> Durations + Send + Sync>,
}

impl LazyDurations {
    pub(crate) fn new(find: impl Fn() -> Durations + Send + Sync + 'static) -> LazyDurations {
        LazyDurations {
            found: OnceLock::new(),
            find: Box::new(find),
        }
    }
}

impl fmt::Debug for LazyDurations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyDurations").field(&self.found).finish()
    }
}

impl OutsideDurations for LazyDurations {
    fn get(&self, position: u64, offset: u64) -> Option<i64> {
        self.found.get_or_init(&self.find).get(position, offset)
    }

    fn unpaired(&self, positions: &Range<u64>) -> u64 {
        self.found.get_or_init(&self.find).unpaired(positions)
    }

    fn is_cut(&self) -> bool {
        self.found.get().is_some_and(OutsideDurations::is_cut)
    }

    fn is_disordered(&self) -> bool {
        self.found
            .get()
            .is_some_and(OutsideDurations::is_disordered)
    }
}

/// The durations of a stream of one part.
pub(crate) fn durations(unpaired: &Unpaired) -> Durations {
    unpaired.durations(1).pop().unwrap_or_default()
}

/// What must be said about durations of slices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Begins whose end is not known.
    pub unpaired: u64,
    /// Whether their ends may be known: too many begins and ends have no partner in their packet.
    pub is_cut: bool,
    /// Whether threads did not write their records in the order of their times.
    pub is_disordered: bool,
}

impl std::ops::AddAssign for Pairing {
    fn add_assign(&mut self, other: Pairing) {
        self.unpaired += other.unpaired;
        self.is_cut |= other.is_cut;
        self.is_disordered |= other.is_disordered;
    }
}

impl Pairing {
    /// What the user should know about durations, where somebody asked for them.
    pub(crate) fn notes(self) -> impl Iterator<Item = String> {
        let disordered = self.is_disordered.then(|| {
            "threads did not write their records in the order of their times: some durations of \
             begin events depend on where the packets of the trace end"
                .to_owned()
        });
        let unpaired = if self.is_cut {
            Some(format!(
                "begin events may have no duration although they end: more begins and ends have no \
                 partner in their packet than are remembered ({MARKS_MAX} of a stream)"
            ))
        } else {
            let count = self.unpaired;
            let missing = format!("{count} begin events have no duration: their end is missing");
            (count > 0).then_some(missing)
        };
        unpaired.into_iter().chain(disordered)
    }
}

/// What must be said of the chunks of an index that are within these bytes, read or not.
pub(crate) fn pairing_in(
    index: &Index,
    within: &Range<u64>,
    outside: Option<&dyn OutsideDurations>,
) -> Pairing {
    let ranges = index
        .chunks()
        .iter()
        .map(|chunk| chunk.offset..chunk.offset.saturating_add(chunk.length));
    let inside = ranges.filter(|range| within.start <= range.start && range.end <= within.end);
    // Chunks follow each other.
    let whole = inside.reduce(|before, next| before.start..next.end);
    let (Some(outside), Some(whole)) = (outside, whole) else {
        return Pairing::default();
    };
    let unpaired = outside.unpaired(&whole);
    Pairing {
        unpaired,
        is_cut: unpaired > 0 && outside.is_cut(),
        is_disordered: outside.is_disordered(),
    }
}

/// The attachment of an index whose chunks have the durations of `outside`.
pub(crate) fn attachment(unpaired: &Unpaired, outside: Option<&dyn OutsideDurations>) -> Vec<u8> {
    let (texts, marks, is_cut) = unpaired.as_parts();
    let stored = |mark: &UnpairedMark| StoredMark {
        position: mark.position,
        ts: mark.ts,
        offset: mark.offset,
        kind: code_of(mark.kind),
        texts: mark.texts,
    };
    ChromeUnpaired {
        durations_checksum: durations_checksum(unpaired, outside),
        is_cut,
        texts: texts.to_vec(),
        marks: marks.iter().map(stored).collect(),
    }
    .encode()
}

/// What [`attachment`] wrote, with the checksum of the indexed durations; `None` if it is damaged
/// or of another version.
pub(crate) fn of_attachment(bytes: &[u8]) -> Option<(Unpaired, u32)> {
    let stored = ChromeUnpaired::decode(bytes).ok()?;
    let mark = |mark: StoredMark| {
        let kind = MarkKind::ALL.get(usize::from(mark.kind))?;
        Some(UnpairedMark {
            position: mark.position,
            ts: mark.ts,
            offset: mark.offset,
            kind: *kind,
            part: 0,
            texts: mark.texts,
        })
    };
    let marks: Option<Vec<UnpairedMark>> = stored.marks.into_iter().map(mark).collect();
    let unpaired = Unpaired::from_parts(stored.texts, marks?, stored.is_cut);
    Some((unpaired, stored.durations_checksum))
}

fn code_of(kind: MarkKind) -> u8 {
    let place = MarkKind::ALL.iter().position(|known| *known == kind);
    u8::try_from(place.unwrap_or_default()).unwrap_or_default()
}

/// A checksum of the durations of all begins.
pub(crate) fn durations_checksum(
    unpaired: &Unpaired,
    outside: Option<&dyn OutsideDurations>,
) -> u32 {
    let (_, marks, _) = unpaired.as_parts();
    let begins = marks
        .iter()
        .filter(|mark| matches!(mark.kind, MarkKind::Begin | MarkKind::AsyncBegin));
    begins.fold(crc32c(b""), |checksum, begin| {
        let duration =
            outside.and_then(|outside| outside.get(begin.position, u64::from(begin.offset)));
        let known = [u8::from(duration.is_some())];
        let checksum = crc32c_append(checksum, &known);
        crc32c_append(checksum, &duration.unwrap_or_default().to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use chunk_index::{ChunkBuilder, IndexConfig};
    use query_language::FieldTable;

    use super::*;

    #[test]
    fn what_is_not_known_of_durations_is_noted_once() {
        let missing = "2 begin events have no duration: their end is missing";
        let cut = "begin events may have no duration although they end";
        let disordered = "threads did not write their records in the order of their times";
        for (unpaired, is_cut, is_disordered, expected) in [
            (0, false, false, &[][..]),
            (2, false, false, &[missing]),
            // Their ends may be among those that are not remembered.
            (2, true, false, &[cut]),
            (0, false, true, &[disordered]),
            (2, false, true, &[missing, disordered]),
            (2, true, true, &[cut, disordered]),
        ] {
            let mut pairing = Pairing::default();
            let half = Pairing {
                unpaired: unpaired / 2,
                is_cut,
                is_disordered,
            };
            pairing += half;
            pairing += Pairing {
                unpaired: unpaired / 2,
                ..Pairing::default()
            };
            let notes: Vec<String> = pairing.notes().collect();
            assert_eq!(notes.len(), expected.len(), "{notes:?}");
            let mut pairs = notes.iter().zip(expected);
            assert!(
                pairs.all(|(note, start)| note.starts_with(start)),
                "{notes:?}"
            );
        }
    }

    /// Durations with a begin without an end in the packet at 110, of which more is not known.
    #[derive(Debug)]
    struct Known {
        is_cut: bool,
        is_disordered: bool,
    }

    impl OutsideDurations for Known {
        fn get(&self, _: u64, _: u64) -> Option<i64> {
            None
        }

        fn unpaired(&self, positions: &Range<u64>) -> u64 {
            u64::from(positions.contains(&110))
        }

        fn is_cut(&self) -> bool {
            self.is_cut
        }

        fn is_disordered(&self) -> bool {
            self.is_disordered
        }
    }

    #[test]
    fn the_begins_of_all_chunks_within_a_part_are_counted() {
        let chunk = |offset| chunk_index::Chunk {
            offset,
            length: 50,
            ..chunk_index::Chunk::default()
        };
        let config = IndexConfig::new(["name"]);
        let mut index = Index::new(&config);
        let mut builder = ChunkBuilder::new(config, &mut FieldTable::new());
        for offset in [0, 50, 100, 150] {
            index.push(chunk(offset), builder.finish());
        }
        for (within, unpaired) in [
            (0..u64::MAX, 1),
            (50..150, 1),
            (100..200, 1),
            (0..100, 0),
            (150..200, 0),
            // The chunk of the begin is only in part there.
            (0..120, 0),
            (101..200, 0),
        ] {
            for (is_cut, is_disordered) in [(false, false), (true, false), (false, true)] {
                let known = Known {
                    is_cut,
                    is_disordered,
                };
                let expected = Pairing {
                    unpaired,
                    is_cut: is_cut && unpaired > 0,
                    is_disordered,
                };
                let found = pairing_in(&index, &within, Some(&known));
                assert_eq!(found, expected, "{within:?} {known:?}");
            }
        }
        let disordered = Known {
            is_cut: false,
            is_disordered: true,
        };
        for (within, outside) in [(0..u64::MAX, None), (10..20, Some(&disordered as _))] {
            assert_eq!(pairing_in(&index, &within, outside), Pairing::default());
        }
    }
}
