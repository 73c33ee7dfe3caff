//! Files that were cut or damaged: what can be read is read, and the rest is reported.

use super::generated::{EVENT_BYTES, PREAMBLE_BYTES, stream, three, write};
use crate::stream::sort_and_deduplicate;
use crate::{OnFault, PacketEntry, Preamble, TraceFolder, WriteOptions, write_events};
use std::path::Path;

/// Numbers of the events, and the faults.
fn salvaged(folder: &Path) -> (Vec<u8>, Vec<String>) {
    let trace = TraceFolder::salvage(folder).unwrap();
    let options = WriteOptions {
        on_fault: OnFault::Skip,
        ..WriteOptions::default()
    };
    let mut text = Vec::new();
    let traces = [trace];
    let written = write_events(&traces, options, &mut text).unwrap();
    let faults = traces[0].faults.iter().chain(&written.faults);
    let faults = faults.map(ToString::to_string).collect();
    let text = String::from_utf8(text).unwrap();
    let number = |line: &str| line.rsplit("n = ").next()?.strip_suffix(" }")?.parse().ok();
    (
        text.lines().map(|line| number(line).unwrap()).collect(),
        faults,
    )
}

#[test]
fn a_cut_file_gives_the_events_before_the_cut() {
    let whole = stream(1, &three());
    let packet = usize::try_from(PREAMBLE_BYTES + 2 * EVENT_BYTES).unwrap();
    let (preamble, event) = (packet - 20, 10);
    // The length of the file, and the number of events that remain.
    let cases = [
        (3 * packet, 6),
        (3 * packet - 1, 5),
        (2 * packet + preamble + event, 5),
        (2 * packet + preamble + event - 1, 4),
        (2 * packet + preamble, 4),
        (2 * packet + preamble - 1, 4),
        (2 * packet + 1, 4),
        (2 * packet, 4),
        (preamble + event, 1),
        (1, 0),
    ];
    for (length, events) in cases {
        let folder = tempfile::tempdir().unwrap();
        // A neighbour of another stream is read, too.
        let mut neighbour = three();
        for event in neighbour.iter_mut().flat_map(|packet| &mut packet.events) {
            *event = (event.0 + 1, event.1 + 10);
        }
        let streams = [
            ("a", whole[..length].to_vec()),
            ("b", stream(2, &neighbour)),
        ];
        write(folder.path(), "", &streams);
        let (found, faults) = salvaged(folder.path());
        let expected: Vec<u8> = (1..=6).flat_map(|n| [n, n + 10]).collect();
        let expected: Vec<u8> = expected
            .into_iter()
            .filter(|n| *n > 10 || *n <= events)
            .collect();
        assert_eq!(found, expected, "{length}");
        let is_whole = length.is_multiple_of(packet);
        assert_eq!(faults.len(), usize::from(!is_whole), "{length}: {faults:?}");
        assert!(
            faults
                .iter()
                .all(|fault| fault.contains("/a: packet at byte")),
            "{faults:?}"
        );
        assert_eq!(
            TraceFolder::open(folder.path()).is_ok(),
            is_whole,
            "{length}"
        );
    }
}

#[test]
fn a_packet_without_a_length_ends_the_file() {
    let packet = usize::try_from(PREAMBLE_BYTES + 2 * EVENT_BYTES).unwrap();
    let mut bytes = stream(1, &three());
    bytes[packet + 32..packet + 40].fill(0);
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "", &[("a", bytes)]);
    let (found, faults) = salvaged(folder.path());
    assert_eq!(found, [1, 2]);
    assert_eq!(faults.len(), 1, "{faults:?}");
}

fn entry(file: usize, begin: Option<i64>, sequence: u64) -> PacketEntry {
    let mut preamble = Preamble::default();
    preamble.info.sequence = Some(sequence);
    PacketEntry {
        file,
        offset: sequence,
        length: 1,
        preamble,
        begin,
        end: None,
    }
}

/// A search among all packets of the same time would take hours.
#[test]
fn many_packets_of_the_same_time_are_sorted_in_linear_time() {
    for begin in [None, Some(7)] {
        let mut packets: Vec<_> = (0..1 << 20).map(|n| entry(0, begin, n)).collect();
        sort_and_deduplicate(&mut packets);
        assert_eq!(packets.len(), 1 << 20);
    }
    // Copies are in other files, and have a time.
    for (begin, left) in [(Some(7), 3), (None, 6)] {
        let files = [0, 1];
        let mut packets: Vec<_> = files
            .into_iter()
            .flat_map(|file| (0..3).map(move |n| entry(file, begin, n)))
            .collect();
        sort_and_deduplicate(&mut packets);
        assert_eq!(packets.len(), left);
    }
}
