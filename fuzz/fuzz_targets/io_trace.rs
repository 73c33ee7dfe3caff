//! I/O traces of a server: parsing, printing, decoding as events, and as accesses.
#![no_main]

use std::ops::ControlFlow;

use io_analysis::{CacheLookups, server_access};
use libfuzzer_sys::fuzz_target;
use query_language::FieldTable;
use trace_kinds::Decoder;
use trace_kinds::io_trace::{
    IoTraceDecoder, Item, PREAMBLE_BYTES, each_item, packet_bytes, put_io_trace_line,
};

/// The first packet of every trace starts with these bytes, up to its lengths.
fn with_our_uuid(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let preamble = trace_kinds::io_trace::preamble();
    let length = preamble.len().min(bytes.len());
    bytes[..length].copy_from_slice(&preamble[..length]);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let _length = packet_bytes(&input[..input.len().min(PREAMBLE_BYTES)]);
    for bytes in [input.to_vec(), with_our_uuid(input)] {
        let (mut text, mut lookups) = (Vec::new(), CacheLookups::new(1 << 20, Vec::new()));
        let (mut records, mut others) = (0, 0);
        let walked = each_item(&bytes, |item| {
            match item {
                Item::Record(record) => {
                    records += 1;
                    put_io_trace_line(&mut text, &record);
                    let _access = server_access(&record);
                    let _blocks = lookups.each(&record, |_| Ok::<(), ()>(()));
                }
                Item::Begin | Item::End { .. } => others += 1,
            }
            ControlFlow::Continue(())
        });
        let mut events = 0;
        let decoded = IoTraceDecoder::new(&FieldTable::new()).decode(&bytes, &mut |event| {
            event.each_field(&mut |_, _| {});
            events += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(events, records);
        assert_eq!(walked.is_ok(), decoded.is_ok());
        if let Ok(decoded) = decoded {
            assert_eq!((decoded.events, decoded.metadata), (records, others));
        }
    }
});
