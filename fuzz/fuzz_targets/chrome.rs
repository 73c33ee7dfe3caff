//! Chrome traces: the scanner in pieces, packets, and events with two projections.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use query_language::{FieldPath, FieldTable};
use trace_kinds::Decoder;
use trace_kinds::chrome::{ChromeDecoder, Found, PacketReader, Scanner};

const FIELDS: &[&str] = &["name", "ts", "dur", "pid", "id", "a.b", "level"];

/// What the scanner finds in a trace that comes in pieces, and where it ends inside an event.
fn scanned(trace: &[u8], piece: usize) -> (Vec<Found>, Option<u64>) {
    let (mut scanner, mut found) = (Scanner::new(), Vec::new());
    let mut visit = |each| {
        found.push(each);
        ControlFlow::Continue(())
    };
    for bytes in trace.chunks(piece) {
        let _flow = scanner.scan(bytes, &mut visit);
    }
    let torn = scanner.finish(&mut visit);
    (found, torn)
}

/// The number of events in a packet, which must not depend on the requested fields.
fn events(packet: &[u8]) -> u64 {
    let counts = [&[], FIELDS].map(|fields: &[&str]| {
        let mut table = FieldTable::new();
        let ids: Vec<_> = fields
            .iter()
            .map(|field| table.insert(&FieldPath::new(field)))
            .collect();
        let mut events = 0;
        let _end = ChromeDecoder::new(&table).decode(packet, &mut |event| {
            events += 1;
            for id in &ids {
                event.field(*id);
            }
            event.each_field(&mut |path, _| assert!(!path.is_empty()));
            ControlFlow::Continue(())
        });
        events
    });
    assert_eq!(counts[0], counts[1]);
    counts[0]
}

fuzz_target!(|input: &[u8]| {
    let whole = scanned(input, input.len().max(1));
    assert_eq!(scanned(input, 7), whole);
    events(input);
    let mut reader = PacketReader::new(input, 100);
    let mut at = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        assert_eq!(packet.offset, at);
        let start = usize::try_from(at).unwrap();
        assert_eq!(packet.bytes, input[start..start + packet.bytes.len()]);
        at += packet.bytes.len() as u64;
        events(&packet.bytes);
    }
    assert!(reader.damage().is_some() || at == input.len() as u64);
});
