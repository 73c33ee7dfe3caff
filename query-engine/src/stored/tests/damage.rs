//! Damaged frames and indexes are reported.

use super::*;

/// The events that a count of a leaf with damaged bytes finds, and the reasons for what it lacks.
fn count_damaged(leaf: &Leaf, bytes: Vec<u8>, order: &str) -> (u64, Vec<String>) {
    let damaged = Arc::new(Memory {
        bytes,
        ..Memory::default()
    });
    let set = StorageSet::open(vec![stored(leaf, &damaged, None)], None).unwrap();
    let mut request = Request::default();
    if !order.is_empty() {
        request.order.keys = OrderKey::parse_list(order).unwrap();
    }
    let sources = set.sources(&request, &request.order.fields()).unwrap();
    let mut rows = 0;
    let (columns, limits) = (Columns::All, Limits::default());
    let mut format = Ndjson::default();
    let report = write_rows(
        &sources,
        &request,
        &columns,
        &mut format,
        limits,
        &mut |row| {
            rows += row.iter().filter(|byte| **byte == b'\n').count() as u64;
            Ok(())
        },
    );
    let report = report.unwrap();
    let strict = Request {
        strict: true,
        ..request
    };
    let refused = count(&sources, &strict, limits);
    assert_eq!(refused.is_err(), !report.is_complete());
    let reasons = report.skipped_reasons().map(str::to_owned);
    (rows, reasons.collect())
}

#[test]
fn damaged_frames_are_skipped_and_reported_with_their_offset() {
    let line = |n: usize| {
        format!(
            "{{\"id\":{n},\"name\":\"r\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1,\
             \"ph\":\"X\"}}\n"
        )
    };
    let packets: Vec<Vec<u8>> = (0..5).map(|n| line(n).into_bytes()).collect();
    for codec in [Codec::None, Codec::Zstd] {
        let (leaf, bytes, ends) = leaf_of(1, &packets, codec);
        let begins = [512, ends[0], ends[1], ends[2], ends[3]];
        let at = |offset: u64| usize::try_from(offset).unwrap();
        for order in ["", "ts", "ts desc"] {
            let check = |damaged: Vec<u8>, rows: u64, places: &[u64]| {
                let (found, reasons) = count_damaged(&leaf, damaged, order);
                assert_eq!((found, reasons.len()), (rows, places.len()), "{reasons:?}");
                for (reason, place) in reasons.iter().zip(places) {
                    assert!(reason.contains(&place.to_string()), "{place}: {reason}");
                }
            };
            check(bytes.clone(), 5, &[]);
            for (number, begin) in begins.iter().enumerate() {
                let mut damaged = bytes.clone();
                damaged[at(*begin) + 88 + 20] ^= 0x10;
                check(damaged, 4, &[begin + 88]);
                let mut damaged = bytes.clone();
                damaged[at(*begin) + 30] ^= 0x10;
                check(damaged, 4, &[begin + 84]);
                let mut damaged = bytes.clone();
                damaged[at(*begin)..at(ends[number])].fill(0);
                check(damaged, 4, &[*begin]);
            }
            let mut damaged = bytes.clone();
            damaged[at(begins[1]) + 3] ^= 1;
            damaged[at(begins[2]) + 3] ^= 1;
            damaged[at(begins[4]) + 90] ^= 1;
            check(damaged, 2, &[begins[1], begins[4] + 88]);
            check(bytes[..at(ends[1])].to_vec(), 2, &[ends[1]]);
            check(bytes[..at(ends[1]) + 40].to_vec(), 2, &[ends[1] + 84]);
            let (rows, reasons) = count_damaged(&leaf, bytes[..at(ends[1]) + 90].to_vec(), order);
            assert_eq!((rows, reasons.is_empty()), (2, false), "{reasons:?}");
        }
    }
}

#[test]
fn packets_between_damaged_blocks_are_found() {
    let line = |n: usize| {
        format!("{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1,\"ph\":\"X\"}}\n")
    };
    let packets: Vec<Vec<u8>> = (0..30).map(|n| line(n).into_bytes()).collect();
    let (leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
    // Packets that a damaged block contains, from the first to the last.
    for (blocks, rows) in [
        (&[(0, 3), (20, 24)][..], 21),
        (&[(0, 0), (29, 29)], 28),
        (&[(0, 9), (11, 19), (21, 29)], 2),
        (&[(5, 5), (7, 7), (9, 9)], 27),
        (&[(0, 29)], 0),
    ] {
        let start = |packet: usize| packet.checked_sub(1).map_or(512, |before| ends[before]);
        let damaged: Vec<_> = blocks
            .iter()
            .map(|(first, last)| start(*first) + 10..ends[*last] - 10)
            .collect();
        let places = damaged.len() as u64;
        let data = Arc::new(Memory {
            bytes: bytes.clone(),
            damaged,
            ..Memory::default()
        });
        let set = StorageSet::open(vec![stored(&leaf, &data, None)], None).unwrap();
        let request = Request::default();
        let sources = set.sources(&request, &[]).unwrap();
        data.requests.store(0, Ordering::Relaxed);
        let (found, report) = count(&sources, &request, Limits::default()).unwrap();
        assert_eq!(found, rows, "{blocks:?}");
        assert_eq!(report.skipped_parts(), places, "{blocks:?} {report:?}");
        // One for all and one for what is left, and as many for an end that is no frame.
        let requests = data.requests.load(Ordering::Relaxed);
        assert!(requests <= 4, "{blocks:?}: {requests}");
    }
}

/// The bytes cannot be read now, which says nothing about them.
struct Unreachable(io::ErrorKind);

impl Fetch for Unreachable {
    fn place(&self) -> String {
        "far".to_owned()
    }

    fn fetch(&self, _: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        Err(self.0.into())
    }

    fn lost(&self, _: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

#[test]
fn bytes_that_are_not_lost_but_cannot_be_read_are_no_damage() {
    let (leaf, _, _) = leaf_of(1, &[b"{}\n".to_vec()], Codec::None);
    for kind in [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Other,
    ] {
        let data: Arc<dyn Fetch> = Arc::new(Unreachable(kind));
        let mut frames = crate::stored::frames::Frames::new(&leaf, &*data).skipping_damage();
        let read = frames.read_run(512..leaf.length, &mut |_, _, _| unreachable!());
        assert!(
            matches!(read, Err(crate::ReadError::Fetch { .. })),
            "{read:?}"
        );
        assert_eq!(frames.into_damage().count, 0);
    }
}

#[test]
fn a_damaged_index_is_reported_and_does_not_change_the_result() {
    let (leaf, data, indexed) = rare();
    let (sidecar, length) = indexed.sidecar.clone().unwrap();
    let bytes = sidecar.fetch_one(0..length).unwrap();
    let request = Request {
        query: Some(Query::parse("name == 'rare' and ret == 123").unwrap()),
        ..Request::default()
    };
    let expected = answers(vec![indexed], &request).0;
    assert!(expected.len() > 20);
    let (mut refused, mut gone_past) = (0, 0);
    for place in (0..bytes.len()).step_by((bytes.len() / 60).max(1)) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x04;
        let (found, report) = answers(vec![stored(&leaf, &data, Some(damaged))], &request);
        assert_eq!(found, expected, "byte {place}");
        refused += usize::from(report.indexed == 0);
        gone_past += usize::from(!report.damaged.is_empty());
    }
    assert!(
        refused > 0 && gone_past > 0,
        "{refused} refused, {gone_past} gone past"
    );
    // Cut after it was opened.
    let set = StorageSet::open(vec![stored(&leaf, &data, Some(bytes))], None).unwrap();
    let ranges = set.candidates(&request).unwrap();
    assert_eq!(
        ranges.iter().map(|leaf| leaf.ranges.len()).sum::<usize>(),
        1
    );
}

#[test]
fn an_index_build_goes_on_behind_damage_and_counts_it() {
    let line = |n: usize| {
        format!(
            "{{\"id\":{n},\"name\":\"r\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1,\
             \"ph\":\"X\"}}\n"
        )
    };
    let packets: Vec<Vec<u8>> = (0..9).map(|n| line(n).into_bytes()).collect();
    let (leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
    let leaf = Leaf {
        checksum: None,
        ..leaf
    };
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let mut header = bytes.clone();
    header[at(ends[3]) + 3] ^= 1;
    let mut payload = bytes.clone();
    payload[at(ends[3]) + 100] ^= 1;
    let cut = bytes[..at(ends[7])].to_vec();
    for (what, damaged) in [("header", header), ("payload", payload), ("cut", cut)] {
        for chunk_bytes in [1, 1 << 20] {
            let data = Arc::new(Memory {
                bytes: damaged.clone(),
                ..Memory::default()
            });
            let plain = stored(&leaf, &data, None);
            let set = StorageSet::open(vec![plain.clone()], None).unwrap();
            let options = LeafIndexOptions {
                chunk_bytes,
                fields: Vec::new(),
            };
            let built = set.index(0, &options, &|| true).unwrap().unwrap();
            let skipped = built.skipped.unwrap();
            assert_eq!(
                (skipped.parts, skipped.reasons.len()),
                (1, 1),
                "{what}: {skipped:?}"
            );
            let indexed = stored(&leaf, &data, Some(built.index.encode().unwrap()));
            for (query, expected) in [("", 8), ("dur == 1ns or dur == 1000ns", 8), ("pid == 2", 0)]
            {
                let request = Request {
                    query: (!query.is_empty()).then(|| Query::parse(query).unwrap()),
                    ..Request::default()
                };
                for leaf in [&plain, &indexed] {
                    let set = StorageSet::open(vec![leaf.clone()], None).unwrap();
                    let sources = set.sources(&request, &[]).unwrap();
                    let (found, report) = count(&sources, &request, Limits::default()).unwrap();
                    assert_eq!(found, expected, "{what} {query}");
                    assert_eq!(report.skipped.len(), 1, "{what} {query}");
                    assert_eq!(report.skipped[0].parts, 1, "{what} {query}");
                    let strict = Request {
                        strict: true,
                        query: request.query.clone(),
                        ..Request::default()
                    };
                    assert!(
                        count(&sources, &strict, Limits::default()).is_err(),
                        "{what} {query}"
                    );
                }
            }
        }
    }
}

/// A leaf of nine packets with one event each, and its bytes.
fn nine() -> (Leaf, Vec<u8>, Vec<u64>) {
    let line =
        |n: usize| format!("{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{n},\"ph\":\"X\"}}\n");
    let packets: Vec<Vec<u8>> = (0..9).map(|n| line(n).into_bytes()).collect();
    leaf_of(1, &packets, Codec::None)
}

/// The bytes of an index of a leaf, made after this one.
fn indexed(leaf: &Leaf, bytes: &[u8], old: Option<Vec<u8>>) -> Vec<u8> {
    let data = Arc::new(Memory {
        bytes: bytes.to_vec(),
        ..Memory::default()
    });
    let set = StorageSet::open(vec![stored(leaf, &data, old)], None).unwrap();
    let built = set.index(0, &LeafIndexOptions::default(), &|| true);
    built.unwrap().unwrap().index.encode().unwrap()
}

/// Events, skipped parts, and whether the index was used, if not of all leaves.
fn counted(leaf: &Leaf, bytes: &[u8], index: &[u8]) -> (u64, u64, usize) {
    let data = Arc::new(Memory {
        bytes: bytes.to_vec(),
        ..Memory::default()
    });
    let plain = stored(leaf, &data, Some(index.to_vec()));
    let set = StorageSet::open(vec![plain], None).unwrap();
    let request = Request::default();
    let sources = set.sources(&request, &[]).unwrap();
    let (found, report) = count(&sources, &request, Limits::default()).unwrap();
    (found, report.skipped_parts(), report.indexed)
}

#[test]
fn an_index_of_damaged_data_is_used_and_another_is_made_of_what_was_restored() {
    let (leaf, bytes, ends) = nine();
    assert!(leaf.checksum.is_some());
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let mut packet = bytes.clone();
    packet[at(ends[3]) + 100] ^= 1;
    // No packet contains it.
    let mut padding = bytes.clone();
    padding[at(ends[3]) - 1] ^= 1;
    for (what, damaged, found) in [
        ("packet", packet, (8, 1, 1)),
        ("padding", padding, (9, 0, 1)),
    ] {
        let index = indexed(&leaf, &damaged, None);
        assert_eq!(counted(&leaf, &damaged, &index), found, "{what}");
        let again = indexed(&leaf, &damaged, Some(index.clone()));
        assert_eq!(counted(&leaf, &damaged, &again), found, "{what}");
        let restored = indexed(&leaf, &bytes, Some(index));
        assert_eq!(counted(&leaf, &bytes, &restored), (9, 0, 1), "{what}");
        // An index of intact data belongs to the data with its checksum only.
        let other = Leaf {
            checksum: leaf.checksum.map(|checksum| checksum ^ 1),
            ..leaf.clone()
        };
        assert_eq!(counted(&other, &bytes, &restored), (9, 0, 0), "{what}");
        // Made before the storage was finalized.
        let open = Leaf {
            checksum: None,
            ..leaf.clone()
        };
        let early = indexed(&open, &damaged, None);
        assert_eq!(counted(&open, &damaged, &early), found, "{what}");
        let late = indexed(&leaf, &damaged, Some(early));
        assert_eq!(counted(&leaf, &damaged, &late), found, "{what}");
    }
}

/// More damaged places than are listed are counted, all of them. An index has their number, and
/// what they may have declared.
#[test]
fn all_damage_is_counted_and_some_is_listed() {
    let head =
        b"{\"name\":\"CM\",\"ph\":\"M\",\"args\":{\"name\":\"time_metric\",\"value\":\"ns\"}}\n";
    let line =
        |n: usize| format!("{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{n},\"ph\":\"X\"}}\n");
    let mut packets = vec![head.to_vec()];
    packets.extend((0..100).map(|n| line(n).into_bytes()));
    let (leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
    for all in [16, 17, 40] {
        let mut damaged = bytes.clone();
        for end in ends.iter().step_by(2).take(all) {
            damaged[usize::try_from(*end).unwrap() + 100] ^= 1;
        }
        let data = Arc::new(Memory {
            bytes: damaged.clone(),
            ..Memory::default()
        });
        let total = format!("{all} records cannot be read");
        for (index, places) in [(None, 16), (Some(indexed(&leaf, &damaged, None)), 1)] {
            let set = StorageSet::open(vec![stored(&leaf, &data, index)], None).unwrap();
            let request = Request::default();
            let sources = set.sources(&request, &[]).unwrap();
            let (found, report) = count(&sources, &request, Limits::default()).unwrap();
            let parts = report.skipped_parts();
            assert_eq!((found, parts), (100 - all as u64, all as u64), "{report:?}");
            let reasons: Vec<_> = report.skipped_reasons().collect();
            let totals = reasons.iter().filter(|reason| reason.contains(&total));
            assert_eq!(totals.count(), usize::from(all > places), "{reasons:?}");
            // The index does not say where, and says the number once.
            let more = usize::from(all > places && places > 1);
            assert_eq!(reasons.len(), places + more, "{reasons:?}");
        }
    }
}

#[test]
fn a_lost_unit_is_told_with_and_without_an_index() {
    let head =
        b"{\"name\":\"CM\",\"ph\":\"M\",\"args\":{\"name\":\"time_metric\",\"value\":\"ns\"}}\n";
    let line =
        |n: usize| format!("{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{n},\"ph\":\"X\"}}\n");
    let mut packets = vec![head.to_vec()];
    packets.extend((0..5).map(|n| line(n).into_bytes()));
    let (leaf, mut bytes, _) = leaf_of(1, &packets, Codec::None);
    let reasons = |bytes: &[u8], index: Option<Vec<u8>>| {
        let data = Arc::new(Memory {
            bytes: bytes.to_vec(),
            ..Memory::default()
        });
        let set = StorageSet::open(vec![stored(&leaf, &data, index)], None).unwrap();
        let request = Request::default();
        let sources = set.sources(&request, &[]).unwrap();
        let (found, report) = count(&sources, &request, Limits::default()).unwrap();
        let reasons: Vec<String> = report.skipped_reasons().map(str::to_owned).collect();
        (found, report.indexed, reasons)
    };
    let check = |bytes: &[u8], parts: usize| {
        for index in [None, Some(indexed(&leaf, bytes, None))] {
            let is_indexed = usize::from(index.is_some());
            let (found, used, reasons) = reasons(bytes, index);
            assert_eq!((found, used), (5, is_indexed), "{reasons:?}");
            assert_eq!(reasons.len(), parts, "{reasons:?}");
            let told = reasons.iter().filter(|reason| {
                reason.ends_with(
                    "it may have declared the unit of times, which are read as microseconds",
                )
            });
            assert_eq!(told.count(), parts, "{reasons:?}");
        }
    };
    check(&bytes, 0);
    bytes[512 + 100] ^= 1;
    check(&bytes, 1);
}

#[test]
fn a_stream_without_its_first_packets_says_so() {
    let unit =
        "{\"name\":\"CM\",\"ph\":\"M\",\"args\":{\"name\":\"time_metric\",\"value\":\"US\"}}\n";
    let line =
        |n: usize| format!("{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{n},\"ph\":\"X\"}}\n");
    for (declares, first, is_told) in [(false, 1, true), (false, 0, false), (true, 1, false)] {
        let mut packets: Vec<Vec<u8>> = (0..5).map(|n| line(n).into_bytes()).collect();
        if declares {
            packets[3].splice(0..0, unit.bytes());
        }
        let (mut leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
        if first == 1 {
            leaf.runs[0].start = ends[0];
        }
        for index in [None, Some(indexed(&leaf, &bytes, None))] {
            let data = Arc::new(Memory {
                bytes: bytes.clone(),
                ..Memory::default()
            });
            let set = StorageSet::open(vec![stored(&leaf, &data, index)], None).unwrap();
            let request = Request {
                strict: true,
                ..Request::default()
            };
            let sources = set.sources(&request, &[]).unwrap();
            let (_, report) = count(&sources, &request, Limits::default()).unwrap();
            let notes = &report.notes;
            assert_eq!(
                notes.len(),
                usize::from(is_told),
                "{declares} {first} {notes:?}"
            );
            assert!(
                notes
                    .iter()
                    .all(|note| note.contains("stream s1 of agent host")),
                "{notes:?}"
            );
        }
    }
}
