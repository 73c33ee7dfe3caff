//! Packets that traces are cut into.

use super::*;

#[test]
fn packets_are_decodable_alone_and_join_to_the_file() {
    let Some(folder) = corpus() else { return };
    for name in ["io_small", "io_variants", "bc_small", "bc_variants"] {
        let file = read(folder.join(format!("{name}.trace")));
        for (target, piece) in [(1, 1), (500, 7), (4096, 1000), (1 << 20, 1 << 20)] {
            let packets = cut(&file, target, piece);
            let joined = join(packets.iter().map(|packet| &packet.bytes[..])).unwrap();
            assert_eq!(joined, file, "{name} {target} {piece}");
            // Concatenated packets are a trace as well.
            let laid: Vec<u8> = packets
                .iter()
                .flat_map(|packet| packet.bytes.iter().copied())
                .collect();
            let again = cut(&laid, target, piece);
            check_ranges(&file, &packets);
            check_ranges(&laid, &again);
            assert_eq!(
                without_ranges(again),
                without_ranges(packets.clone()),
                "{name}"
            );
            check_packets(name, &file, &packets);
        }
    }
}

/// The packets without input ranges, which depend on the headers between them.
fn without_ranges(packets: Vec<Packet>) -> Vec<Packet> {
    let packets = packets.into_iter();
    packets
        .map(|packet| Packet {
            input_range: 0..0,
            ..packet
        })
        .collect()
}

/// Checks that the input ranges contain the packets, except for continuation headers.
fn check_ranges(pushed: &[u8], packets: &[Packet]) {
    let mut cutter = Cutter::new(1 << 20);
    cutter.push(pushed).unwrap();
    let continuation = cutter.continuation().unwrap();
    for packet in packets {
        let index = |offset| usize::try_from(offset).unwrap();
        let place = index(packet.input_range.start)..index(packet.input_range.end);
        let mut made = Vec::new();
        if packet.input_range.start > 0 {
            continuation.at(packet.offset).put(&mut made);
        }
        assert_eq!([&made, &pushed[place]].concat(), packet.bytes);
    }
}

fn check_packets(name: &str, file: &[u8], packets: &[Packet]) {
    if name.starts_with("bc") {
        let mut whole = BlockCacheTrace::open(file).unwrap();
        for packet in packets {
            let mut part = BlockCacheTrace::open(&packet.bytes).unwrap();
            assert_eq!(part.offset(), whole.offset());
            let mut records = 0;
            while let Some(record) = part.next_record().unwrap() {
                assert_eq!(Some(record), whole.next_record().unwrap());
                let ns = i64::try_from(record.time).unwrap() * 1000;
                assert!((packet.start_ns..=packet.end_ns).contains(&ns));
                records += 1;
            }
            assert_eq!(records, packet.records);
        }
        assert_eq!(whole.next_record(), Ok(None));
        return;
    }
    let mut whole = IoTrace::open(file).unwrap();
    for packet in packets {
        let mut part = IoTrace::open(&packet.bytes).unwrap();
        assert_eq!(part.offset(), whole.offset());
        let mut least = i64::MAX;
        while let Some(record) = part.next_record().unwrap() {
            assert_eq!(Some(record), whole.next_record().unwrap());
            assert_eq!(part.start_ns(&record), whole.start_ns(&record), "{name}");
            least = least.min(part.start_ns(&record));
        }
        assert_eq!(packet.start_ns, least, "{name} at {}", packet.offset);
    }
    assert_eq!(whole.next_record(), Ok(None));
}

#[test]
fn a_missing_packet_is_a_gap() {
    let Some(folder) = corpus() else { return };
    let packets = cut(&read(folder.join("io_small.trace")), 4096, 4096);
    assert!(packets.len() > 3);
    let without_second = packets
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != 1)
        .map(|(_, packet)| &packet.bytes[..]);
    let error = join(without_second.clone()).unwrap_err();
    assert_eq!(
        error,
        RocksdbError::Gap {
            expected: packets[1].offset,
            found: packets[2].offset
        }
    );
    let laid: Vec<u8> = without_second.flatten().copied().collect();
    assert_eq!(Cutter::new(1 << 20).push(&laid), Err(error));
}
