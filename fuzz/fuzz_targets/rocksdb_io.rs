//! RocksDB IO traces: parsing, printing, splitting, joining, decoding as events.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use query_language::FieldTable;
use trace_kinds::Decoder;
use trace_kinds::rocksdb::{
    Cutter, IoTrace, RocksdbDecoder, TraceKind, join, put_io_header, put_io_line,
};

fuzz_target!(|input: &[u8]| {
    let mut text = Vec::new();
    let mut records = 0;
    if let Ok(mut trace) = IoTrace::open(input) {
        put_io_header(&mut text, trace.header());
        while let Ok(Some(record)) = trace.next_record() {
            put_io_line(&mut text, &record);
            let _start = trace.start_ns(&record);
            records += 1;
        }
        let mut events = 0;
        let mut decoder = RocksdbDecoder::new(TraceKind::Io, &FieldTable::new());
        let _end = decoder.decode(input, &mut |event| {
            event.each_field(&mut |_, _| {});
            events += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(events, records);
    }
    let mut cutter = Cutter::new(200);
    for piece in input.chunks(61) {
        if cutter.push(piece).is_err() {
            break;
        }
    }
    let packets: Vec<_> = std::iter::from_fn(|| cutter.flush()).collect();
    // A file without continuation headers is restored exactly from its packets.
    if packets.first().is_some_and(|first| first.offset == 38)
        && let Ok(file) = join(packets.iter().map(|packet| &packet.bytes[..]))
    {
        assert!(file.len() <= input.len());
    }
});
