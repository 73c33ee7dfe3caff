//! The repair file (`.repairs`): how the log of a storage was repaired, and which packets are
//! missing since.
//!
//! A repair cuts the log at the first damage and copies the packets behind it that are whole to a
//! new data file, which continues the log at the cut. It takes effect when that file has its name;
//! a repair that copies nothing takes effect with the repair file. From then on the data files
//! between the cut and the new one, and index parts that describe what was cut, do not belong to
//! the storage any more.
//!
//! The file is an envelope (`envelope.rs`) with the magic `THREPAIR`. Older servers do not know
//! it: they find the log that continues at the cut, and nothing of what is missing.

use serde::{Deserialize, Serialize};

use crate::{
    DataFileId, FormatError, FormatErrorKind, StorageId, checksum::crc32c_append, envelope,
    index_part::LogPosition, log::PreviousFile,
};

const MAGIC: [u8; 8] = *b"THREPAIR";
const WHAT: &str = "repair file";
/// Missing ranges that are recorded at most; neighbours are joined beyond.
pub const MISSING_COUNT_MAX: usize = 1 << 16;

/// The content of a repair file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairFile {
    /// The storage.
    pub storage: StorageId,
    /// Its repairs, oldest first.
    pub repairs: Vec<Repair>,
}

/// A repair of a storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// When it was made, ns since the epoch.
    pub time: i64,
    /// The last data file before the cut, by id, and its length; `None` when the log was cut at its
    /// beginning.
    pub cut: Option<(u64, u64)>,
    /// Number of the first batch after the cut.
    pub batch: u64,
    /// Id of the data file that continues the log.
    pub next_file: u64,
    /// Packets that were copied to that file; without any it exists once the log is written again.
    pub copied_packets: u64,
    /// Packets that arrive afterwards have this number or a greater one.
    pub next_number: u64,
    /// What is missing, in the order of the log.
    pub missing: Vec<Missing>,
}

/// Packets that were acknowledged and are not whole any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// First and last number that may be missing.
    pub first: u64,
    /// As `first`.
    pub last: u64,
    /// The damaged data file, by id.
    pub file: u64,
    /// Where the damage begins in it, bytes.
    pub offset: u64,
    /// Damaged bytes.
    pub length: u64,
    /// The leaf, by id, where it is known.
    pub leaf: Option<u64>,
}

impl Missing {
    /// How many packets are missing at most.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }
}

impl Repair {
    /// The last data file before the cut.
    #[must_use]
    pub fn cut_file(&self) -> Option<PreviousFile> {
        self.cut.map(|(file, length)| PreviousFile {
            file: DataFileId(file),
            length,
        })
    }

    /// Whether a data file of the log, or the arranged file in its place, does not belong to the
    /// storage since this repair.
    #[must_use]
    pub fn voids_file(&self, file: DataFileId) -> bool {
        let file = file.replaced().unwrap_or(file);
        let is_after = self.cut.is_none_or(|(cut, _)| file.0 > cut);
        is_after && file.0 < self.next_file
    }

    /// Whether an index part that ends at `position` describes what this repair cut.
    #[must_use]
    pub fn voids_part(&self, position: &LogPosition) -> bool {
        position.file.0 < self.next_file && position.batch > self.batch
    }
}

impl RepairFile {
    /// The repair file of a storage that was never repaired.
    #[must_use]
    pub fn new(storage: StorageId) -> Self {
        Self {
            storage,
            repairs: Vec::new(),
        }
    }

    /// Whether a data file, arranged or not, does not belong to the storage any more.
    #[must_use]
    pub fn voids_file(&self, file: DataFileId) -> bool {
        self.repairs.iter().any(|repair| repair.voids_file(file))
    }

    /// All that is missing.
    pub fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.repairs.iter().flat_map(|repair| &repair.missing)
    }

    /// Identifies the cuts of the log; 0 if there are none. With another value, bytes of a leaf may
    /// be at other offsets.
    #[must_use]
    pub fn cuts(&self) -> u32 {
        let mut sum = 0;
        for repair in &self.repairs {
            let (file, length) = repair.cut.unwrap_or((u64::MAX, u64::MAX));
            for field in [file, length, repair.batch, repair.next_file] {
                sum = crc32c_append(sum, &field.to_le_bytes());
            }
            sum = crc32c_append(sum, &repair.time.to_le_bytes());
        }
        sum
    }

    /// How many packets are missing at most; a number that several repairs missed counts once.
    #[must_use]
    pub fn missing_packets(&self) -> u64 {
        let mut ranges: Vec<_> = self
            .missing()
            .map(|range| (range.first, range.last))
            .collect();
        ranges.sort_unstable();
        let (mut packets, mut next) = (0_u64, 0);
        for (first, last) in ranges {
            let first = first.max(next);
            if first <= last {
                let counted = last.saturating_sub(first).saturating_add(1);
                packets = packets.saturating_add(counted);
                next = last.saturating_add(1);
            }
        }
        packets
    }

    /// Joins neighbours of the oldest repairs while there are more than [`MISSING_COUNT_MAX`]
    /// ranges: what is between them was found before, or is found under its number.
    pub fn join_neighbours(&mut self) {
        let mut count = self.missing().count();
        for repair in &mut self.repairs {
            while count > MISSING_COUNT_MAX && repair.missing.len() > 1 {
                let before = repair.missing.len();
                repair.missing = join_neighbours(&repair.missing);
                count = count
                    .saturating_sub(before)
                    .saturating_add(repair.missing.len());
            }
        }
    }

    /// Whether a packet that the storage does not have may be missing.
    #[must_use]
    pub fn is_missing(&self, number: u64) -> bool {
        self.is_any_missing(number, number)
    }

    /// Whether packets may be missing among those with the numbers `first` to `last`.
    #[must_use]
    pub fn is_any_missing(&self, first: u64, last: u64) -> bool {
        self.missing()
            .any(|missing| missing.first <= last && first <= missing.last)
    }

    /// Packets that arrive have this number or a greater one.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        let next = self.repairs.iter().map(|repair| repair.next_number);
        next.max().unwrap_or(0)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        envelope::encode(WHAT, MAGIC, self)
    }

    /// Checks that the file belongs to the storage `id`, in whose folder it is.
    ///
    /// # Errors
    /// When it belongs to another storage.
    pub fn check_id(&self, id: StorageId) -> Result<(), FormatError> {
        if self.storage == id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 0, FormatErrorKind::Foreign))
    }

    /// Decodes a repair file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version, impossible or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let file: Self = envelope::decode(WHAT, MAGIC, bytes)?;
        let is_ordered = |repair: &Repair| {
            let cuts_before = repair.cut.is_none_or(|(cut, _)| cut < repair.next_file);
            cuts_before && repair.missing.iter().all(|range| range.first <= range.last)
        };
        if file.repairs.iter().all(is_ordered) {
            return Ok(file);
        }
        let kind = FormatErrorKind::Order { name: "repairs" };
        Err(FormatError::new(WHAT, 0, kind))
    }
}

/// Joins each two neighbours: what is between them exists, and is found under its number.
#[must_use]
pub fn join_neighbours(found: &[Missing]) -> Vec<Missing> {
    let join = |pair: &[Missing]| {
        let (first, last) = (pair.first()?, pair.last()?);
        Some(Missing {
            last: first.last.max(last.last),
            leaf: first.leaf.filter(|_| pair.len() == 1),
            ..first.clone()
        })
    };
    found.chunks(2).filter_map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair() -> Repair {
        Repair {
            time: 7,
            cut: Some((2, 8192)),
            batch: 9,
            next_file: 5,
            copied_packets: 1,
            next_number: 40,
            missing: vec![Missing {
                first: 10,
                last: 12,
                file: 2,
                offset: 8192,
                length: 4096,
                leaf: None,
            }],
        }
    }

    #[test]
    fn a_repair_voids_what_it_cut() {
        let voided: Vec<u64> = (0..8)
            .filter(|&id| repair().voids_file(DataFileId(id)))
            .collect();
        assert_eq!(voided, [3, 4]);
        let from_start = Repair {
            cut: None,
            ..repair()
        };
        assert!((0..5).all(|id| from_start.voids_file(DataFileId(id))));
        assert!(!from_start.voids_file(DataFileId(5)));
        let arranged = (0..8).filter_map(|id| DataFileId(id).replacement());
        let voided: Vec<_> = arranged.filter(|&id| repair().voids_file(id)).collect();
        let expected = [3, 4].map(|id| DataFileId(id).replacement());
        assert_eq!(voided, expected.into_iter().flatten().collect::<Vec<_>>());
        let position = |file, batch| LogPosition {
            file: DataFileId(file),
            offset: 4096,
            batch,
            chain: 0,
        };
        assert!(!repair().voids_part(&position(2, 9)), "it ends at the cut");
        assert!(repair().voids_part(&position(2, 10)));
        assert!(repair().voids_part(&position(4, 12)));
        assert!(!repair().voids_part(&position(5, 12)), "it is newer");
    }

    fn range(first: u64, last: u64) -> Missing {
        Missing {
            first,
            last,
            file: 0,
            offset: 0,
            length: 1,
            leaf: Some(1),
        }
    }

    #[test]
    fn a_number_that_is_missing_twice_counts_once() {
        let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
        for missing in [
            vec![range(10, 12), range(20, 29)],
            vec![range(0, 0), range(12, 13), range(25, 26), range(30, 30)],
            vec![range(29, 31)],
        ] {
            file.repairs.push(Repair {
                missing,
                ..repair()
            });
        }
        assert_eq!(file.missing_packets(), 1 + 4 + 12);
        file.repairs[2].missing.push(range(0, u64::MAX));
        assert_eq!(file.missing_packets(), u64::MAX);
    }

    #[test]
    fn the_ranges_of_all_repairs_have_one_bound() {
        let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
        let missing: Vec<_> = (0..40_000).map(|at| range(at * 2, at * 2)).collect();
        for _ in 0..2 {
            file.repairs.push(Repair {
                missing: missing.clone(),
                ..repair()
            });
        }
        file.join_neighbours();
        let counts: Vec<_> = file.repairs.iter().map(|one| one.missing.len()).collect();
        assert_eq!(counts, [20_000, 40_000]);
        assert_eq!(
            (
                file.repairs[0].missing[1].first,
                file.repairs[0].missing[1].last
            ),
            (4, 6)
        );
        assert!(file.encode().is_ok());
    }

    /// A range that cannot be joined does not keep others from it, and one at the bound stays.
    #[test]
    fn ranges_are_joined_beyond_the_bound_and_not_before() {
        let many = u64::try_from(MISSING_COUNT_MAX).unwrap();
        for (count, expected) in [(many - 1, [1, MISSING_COUNT_MAX - 1]), (many, [1, 1 << 15])] {
            let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
            let others = (0..count).map(|at| range(at * 2, at * 2)).collect();
            for missing in [vec![range(7, 7)], others] {
                file.repairs.push(Repair {
                    missing,
                    ..repair()
                });
            }
            file.join_neighbours();
            let counts: Vec<_> = file.repairs.iter().map(|one| one.missing.len()).collect();
            assert_eq!(counts, expected);
        }
    }

    #[test]
    fn a_file_belongs_to_the_log_unless_any_repair_cut_it() {
        let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
        let voided = |file: &RepairFile| -> Vec<u64> {
            let ids = (0..12).filter(|&id| file.voids_file(DataFileId(id)));
            ids.collect()
        };
        assert_eq!(voided(&file), [0; 0]);
        for (cut, next_file, expected) in [
            (Some((2, 8192)), 5, &[3, 4][..]),
            (Some((7, 4096)), 10, &[3, 4, 8, 9]),
            (None, 2, &[0, 1, 3, 4, 8, 9]),
        ] {
            let cut_file = cut.map(|(file, length)| PreviousFile {
                file: DataFileId(file),
                length,
            });
            let repair = Repair {
                cut,
                next_file,
                ..repair()
            };
            assert_eq!(repair.cut_file(), cut_file);
            file.repairs.push(repair);
            assert_eq!(voided(&file), expected);
        }
    }

    #[test]
    fn a_repair_is_before_the_file_that_continues_the_log() {
        for (cut, last, is_possible) in [
            (Some((4, 1)), 10, true),
            (Some((5, 1)), 10, false),
            (Some((6, 1)), 10, false),
            (None, 10, true),
            (None, 9, false),
        ] {
            let mut repair = Repair { cut, ..repair() };
            repair.missing[0].last = last;
            let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
            file.repairs.push(repair);
            let read = RepairFile::decode(&file.encode().unwrap());
            assert_eq!(read.is_ok(), is_possible, "{cut:?}, {last}");
        }
    }

    proptest::proptest! {
        /// The ranges mean a set of numbers, and joining them loses none.
        #[test]
        fn what_is_missing_is_a_set_of_numbers(
            repairs in proptest::collection::vec(
                proptest::collection::vec((0..60_u64, 0..9_u64, 0..3_u64), 0..6), 0..4),
        ) {
            let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
            let mut model = std::collections::BTreeSet::new();
            for ranges in &repairs {
                let ranges = ranges.iter().map(|&(first, more, leaf)| Missing {
                    leaf: Some(leaf),
                    ..range(first, first.saturating_add(more))
                });
                let missing: Vec<_> = ranges.collect();
                for range in &missing {
                    let numbers = range.first..=range.last;
                    assert_eq!(range.packets(), u64::try_from(numbers.clone().count()).unwrap());
                    model.extend(numbers);
                }
                let joined = join_neighbours(&missing);
                assert_eq!(joined.len(), missing.len().div_ceil(2));
                for (joined, pair) in joined.iter().zip(missing.chunks(2)) {
                    assert_eq!(joined.first, pair[0].first);
                    assert!(pair.iter().all(|range| range.last <= joined.last));
                    let leaf = pair[0].leaf.filter(|_| pair.len() == 1);
                    assert_eq!(joined.leaf, leaf, "only one range is of one leaf");
                }
                file.repairs.push(Repair { missing, ..repair() });
            }
            let count = u64::try_from(model.len()).unwrap();
            assert_eq!(file.missing_packets(), count);
            for first in 0..80 {
                assert_eq!(file.is_missing(first), model.contains(&first), "{first}");
                for last in first..80 {
                    let any = model.range(first..=last).next().is_some();
                    assert_eq!(file.is_any_missing(first, last), any, "{first} to {last}");
                }
            }
        }
    }

    #[test]
    fn each_cut_changes_what_identifies_the_cuts() {
        let mut file = RepairFile::new(StorageId::from_bytes([3; 16]));
        let mut known = vec![file.cuts()];
        assert_eq!(known, [0]);
        for cut in [repair().cut, repair().cut, None] {
            file.repairs.push(Repair { cut, ..repair() });
            known.push(file.cuts());
        }
        file.repairs[0].time += 1;
        known.push(file.cuts());
        file.repairs[0].missing.clear();
        assert_eq!(file.cuts(), known[4], "what is missing is no cut");
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), 5);
    }

    #[test]
    fn missing_numbers_are_found() {
        let storage = StorageId::from_bytes([3; 16]);
        let mut file = RepairFile::new(storage);
        assert_eq!((file.missing_packets(), file.next_number()), (0, 0));
        file.repairs.push(repair());
        assert_eq!((file.missing_packets(), file.next_number()), (3, 40));
        let missing: Vec<u64> = (0..20).filter(|&number| file.is_missing(number)).collect();
        assert_eq!(missing, [10, 11, 12]);
        assert!(file.is_any_missing(0, 10) && file.is_any_missing(12, 90));
        assert!(!file.is_any_missing(0, 9) && !file.is_any_missing(13, 90));
        let bytes = file.encode().expect("it is small");
        assert_eq!(RepairFile::decode(&bytes), Ok(file.clone()));
        assert_eq!(file.check_id(storage), Ok(()));
        assert!(file.check_id(StorageId::from_bytes([4; 16])).is_err());
        file.repairs[0].missing[0].last = 9;
        let bytes = file.encode().expect("it is small");
        assert!(RepairFile::decode(&bytes).is_err());
    }
}
