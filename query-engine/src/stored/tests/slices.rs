//! Slices of a Chrome stream that begin in one leaf and end in another.

use storage_format::StreamPosition;
use storage_format::frame::HEADER_BYTES;
use storage_format::index_part::PacketEntry;

use super::*;
use crate::stored::slices::{SliceMemory, StreamSlices};
use trace_kinds::chrome::OutsideDurations;

/// Packets of one stream: a slice over all of them, one that never ends, and short ones.
fn packets(count: usize) -> Vec<Vec<u8>> {
    let event = |ts: usize, phase: &str, name: &str, tid: u32| {
        format!("{{\"ph\":\"{phase}\",\"ts\":{ts},\"name\":\"{name}\",\"pid\":1,\"tid\":{tid}}}")
    };
    let packet = |number: usize| {
        let ts = number * 100;
        let mut events = vec![event(ts + 1, "E", "", 2), event(ts + 2, "B", "step", 2)];
        if number == 0 {
            events[0] = event(0, "B", "main", 1);
            events.push(event(3, "B", "open", 3));
        }
        if number + 1 == count {
            events.push(event(ts + 50, "E", "main", 1));
        }
        let start = if number == 0 { "[" } else { "," };
        format!("{start}{}", events.join(",")).into_bytes()
    };
    (0..count).map(packet).collect()
}

/// Leaves of these packets each.
fn leaves(packets: &[Vec<u8>], of_leaf: usize) -> Vec<(Leaf, Arc<Memory>)> {
    let parts = (1_u64..).zip(packets.chunks(of_leaf));
    let leaf = |(number, packets): (u64, &[Vec<u8>])| {
        let (mut leaf, bytes, _) = leaf_of(number, packets, Codec::Zstd);
        leaf.path.kind = Kind::Chrome;
        leaf.path.stream = "trace".parse().unwrap();
        let memory = Memory {
            bytes,
            ..Memory::default()
        };
        (leaf, Arc::new(memory))
    };
    parts.map(leaf).collect()
}

fn set_of(leaves: &[(Leaf, Arc<Memory>)], indexes: &[Option<Vec<u8>>]) -> StorageSet {
    let all = leaves.iter().zip(indexes);
    let all = all.map(|((leaf, data), index)| stored(leaf, data, index.clone()));
    StorageSet::open(all.collect(), None).unwrap()
}

fn matched(set: StorageSet, query: &str) -> (u64, Report) {
    let request = Request {
        query: Some(Query::parse(query).unwrap()),
        ..Request::default()
    };
    let sources = set.sources(&request, &[]).unwrap();
    count(&sources, &request, Limits::default()).unwrap()
}

fn indexed(set: &StorageSet, position: usize) -> Vec<u8> {
    let options = LeafIndexOptions::default();
    let indexed = set.index(position, &options, &|| true).unwrap().unwrap();
    indexed.index.encode().unwrap()
}

const QUERIES: [(&str, u64); 5] = [
    ("name == 'main' and dur == 550us", 1),
    ("name == 'step' and dur == 99us", 5),
    ("dur > 0", 6),
    ("dur > 100us", 1),
    ("name == 'open' and dur is null", 1),
];

#[test]
fn every_combination_of_indexes_gives_the_same_durations() {
    let leaves = leaves(&packets(6), 2);
    let none = vec![None; 3];
    let made: Vec<_> = (0..3)
        .map(|position| indexed(&set_of(&leaves, &none), position))
        .collect();
    for chosen in 0..8_u32 {
        let of = |(at, index): (u32, &Vec<u8>)| (chosen & 1 << at != 0).then(|| index.clone());
        let indexes: Vec<_> = (0..3).zip(&made).map(of).collect();
        for (query, expected) in QUERIES {
            let (found, report) = matched(set_of(&leaves, &indexes), query);
            assert_eq!(found, expected, "{query} {chosen}");
            let used = u64::from(chosen.count_ones());
            assert_eq!(report.indexed as u64, used, "{query} {report:?}");
        }
    }
}

#[test]
fn an_index_that_was_made_before_slices_ended_is_not_used_and_is_made_again() {
    let leaves = leaves(&packets(6), 2);
    let early = indexed(&set_of(&leaves[..1], &[None]), 0);
    let indexes = [Some(early), None, None];
    for (query, expected) in QUERIES {
        let mut set = set_of(&leaves, &indexes);
        set.drop_outdated(&Request::default()).unwrap();
        let unused: Vec<_> = set.unused_indexes().collect();
        assert!(
            unused[0].1.contains("slices that began in it"),
            "{unused:?}"
        );
        let (found, _) = matched(set, query);
        assert_eq!(found, expected, "{query}");
    }
    // A finalized storage has its index made again at once; one that grows waits.
    let mut set = set_of(&leaves, &indexes);
    set.drop_outdated(&Request::default()).unwrap();
    let uncovered = set.leaves().next().unwrap();
    assert_eq!(uncovered.1, uncovered.0.length);
    let again = indexed(&set, 0);
    let (_, report) = matched(set_of(&leaves, &[Some(again), None, None]), "dur > 100us");
    assert_eq!(report.indexed, 1, "{report:?}");
    let mut open = leaves;
    open[0].0.checksum = None;
    let mut set = set_of(&open, &indexes);
    set.drop_outdated(&Request::default()).unwrap();
    assert_eq!(set.leaves().next().unwrap().1, 0);
}

/// A leaf with an index, in which a slice begins, and one that no index covers.
fn growing() -> (Vec<StoredLeaf>, Arc<Memory>) {
    let mut leaves = leaves(&packets(4), 2);
    let early = indexed(&set_of(&leaves[..1], &[None]), 0);
    for (leaf, _) in &mut leaves {
        leaf.checksum = None;
    }
    let tail = Arc::clone(&leaves[1].1);
    let indexes = [Some(early), None];
    let all = leaves.iter().zip(indexes);
    let all = all.map(|((leaf, data), index)| stored(leaf, data, index));
    (all.collect(), tail)
}

#[test]
fn the_end_of_a_growing_stream_is_read_only_by_queries_that_may_need_it() {
    let (leaves, tail) = growing();
    let mut set = StorageSet::open(leaves.clone(), None).unwrap();
    let uncovered: Vec<u64> = set.leaves().map(|(_, uncovered)| uncovered).collect();
    assert_eq!(uncovered, [0, leaves[1].leaf.length]);
    let read = || tail.requests.load(Ordering::Relaxed);
    assert_eq!(
        read(),
        0,
        "to open a set, or to look for what is not indexed"
    );
    let request = |query: &str| Request {
        query: Some(Query::parse(query).unwrap()),
        ..Request::default()
    };
    set.drop_outdated(&request("dur > 0 and kind == 'otlp'"))
        .unwrap();
    assert_eq!(read(), 0, "the origin rules the stream out");
    set.drop_outdated(&request("dur > 0")).unwrap();
    assert!(read() > 0);
    assert_eq!(set.unused_indexes().count(), 1);
}

/// All packets of a leaf, with these times.
struct PacketsAt(Vec<PacketEntry>);

impl PacketTimes for PacketsAt {
    fn each(&self, _: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()> {
        self.0.iter().for_each(each);
        Ok(())
    }
}

fn packets_at(packets: &[Vec<u8>], ends: &[u64], time_span: (i64, i64)) -> Arc<PacketsAt> {
    let starts = std::iter::once(&512).chain(ends);
    let places = (0_u64..).zip(packets).zip(starts.zip(ends));
    let entry = |((number, packet), (start, end)): ((u64, &Vec<u8>), (&u64, &u64))| PacketEntry {
        number,
        offset: start + HEADER_BYTES as u64,
        stored_size: u32::try_from(end - start - HEADER_BYTES as u64).unwrap(),
        raw_size: u32::try_from(packet.len()).unwrap(),
        position: StreamPosition::new(1, number),
        facts: Facts {
            time_span: Some(time_span),
            ..Facts::default()
        },
        raw_checksum: crc32c(packet),
        codec: Codec::Zstd,
    };
    Arc::new(PacketsAt(places.map(entry).collect()))
}

/// A window that rules out a stream does so, too, although its notes would need the end of it.
#[test]
fn the_end_of_a_growing_stream_is_not_read_for_the_notes_of_a_window() {
    let (mut leaves, tail) = growing();
    for (stored, packets) in leaves.iter_mut().zip(packets(4).chunks(2)) {
        let (_, _, ends) = leaf_of(1, packets, Codec::Zstd);
        stored.times = Some(packets_at(packets, &ends, (0, 400_000)));
    }
    let read = || tail.requests.load(Ordering::Relaxed);
    for (query, is_read) in [
        ("dur > 0 and ts > 1970-01-02", false),
        ("dur > 0 and ts > 0", true),
    ] {
        let set = StorageSet::open(leaves.clone(), None).unwrap();
        let request = Request {
            query: Some(Query::parse(query).unwrap()),
            ..Request::default()
        };
        let before = read();
        let sources = set.sources(&request, &[]).unwrap();
        let (_, report) = count(&sources, &request, Limits::default()).unwrap();
        assert_eq!(read() > before, is_read, "{query}: {report:?}");
        assert_eq!(report.notes.is_empty(), !is_read, "{query}: {report:?}");
    }
}

#[test]
fn a_search_for_the_ends_of_slices_ends_with_its_query() {
    let (leaves, tail) = growing();
    let request = Request::default();
    request.cancel.cancel();
    let set = StorageSet::open(leaves, None).unwrap();
    let ended = set.sources(&request, &[]);
    assert!(matches!(ended, Err(crate::ReadError::Cancelled)));
    assert_eq!(
        tail.requests.load(Ordering::Relaxed),
        1,
        "one batch at most"
    );
    let set = StorageSet::open(growing().0, None).unwrap();
    let ended = set.candidates(&request);
    assert!(matches!(ended, Err(crate::ReadError::Cancelled)));
}

#[test]
fn damage_of_a_leaf_that_the_query_does_not_read_is_told_where_slices_may_end_in_it() {
    let leaves = leaves(&packets(6), 2);
    let (last, bytes) = &leaves[2];
    let mut damaged = bytes.bytes.clone();
    let at = damaged.len() - 20;
    damaged[at] ^= 0xff;
    let damaged = Arc::new(Memory {
        bytes: damaged,
        ..Memory::default()
    });
    let ends_early = Arc::new(Memory {
        bytes: bytes.bytes.clone(),
        damaged: std::iter::once(0..u64::MAX).collect(),
        ..Memory::default()
    });
    for last_data in [damaged, ends_early] {
        let leaves = [
            leaves[0].clone(),
            leaves[1].clone(),
            (last.clone(), last_data),
        ];
        // A query whose window rules out the other leaves has the source of the first only.
        let ask = |query: &str, strict| {
            let request = Request {
                query: Some(Query::parse(query).unwrap()),
                strict,
                ..Request::default()
            };
            let set = set_of(&leaves, &[None, None, None]);
            let sources = set.sources(&request, &[]).unwrap();
            count(&sources[..1], &request, Limits::default())
        };
        let (found, report) = ask("name == 'main' and dur is null", false).unwrap();
        assert_eq!(found, 1);
        let reasons: Vec<_> = report.skipped_reasons().collect();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(
            reasons[0].starts_with("durations of slices may be missing: memory"),
            "{reasons:?}"
        );
        let refused = ask("name == 'main' and dur is null", true);
        assert!(matches!(refused, Err(crate::ReadError::Incomplete { .. })));
        // Nothing is missing of a result without durations.
        let (found, report) = ask("name == 'main'", true).unwrap();
        assert!(found == 1 && report.is_complete(), "{report:?}");
    }
}

#[test]
fn durations_of_all_streams_have_one_limit_of_memory() {
    let leaves = leaves(&packets(6), 2);
    // The first event of the first packet.
    let offsets = [(leaves[0].0.runs[0].start, 1)];
    let streams = |bytes| {
        let memory = Arc::new(SliceMemory::new(bytes));
        [(), ()].map(|()| {
            let leaves = leaves
                .iter()
                .map(|(leaf, data)| (stored(leaf, data, None), None));
            let stream = StreamSlices::new(leaves.collect(), Arc::clone(&memory));
            let slices = Arc::new(stream).of_leaf(0);
            let begins = offsets.iter();
            let known = begins.filter(|(at, offset)| slices.get(*at, *offset).is_some());
            let known = known.count();
            (known, slices.is_cut())
        })
    };
    let [first, second] = streams(1 << 20);
    assert!(first == second && first.0 > 0 && !first.1, "{first:?}");
    // There is room for one of them.
    let [again, without] = streams(200);
    assert_eq!(again, first);
    assert_eq!(without, (0, true));
}
