//! The body of a call over gRPC in pieces, and the request of spans in it. The first byte is the
//! number of cuts; the bytes after it are the lengths of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace_kinds::otlp::{RequestLimits, check};

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else {
        return;
    };
    let (cuts, bytes) = rest.split_at(rest.len().min(usize::from(count)));
    if let Some(message) = server::fuzzing::read_grpc_message(bytes, cuts) {
        let _ = check(&message, &RequestLimits::READABLE);
    }
});
