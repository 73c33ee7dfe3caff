//! OTLP requests in JSON: an accepted request is a valid request in protobuf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace_kinds::otlp::{RequestLimits, check, to_protobuf};

fuzz_target!(|input: &[u8]| {
    let Ok(request) = to_protobuf(input) else {
        return;
    };
    check(&request, &RequestLimits::READABLE).expect("what was read from JSON is valid");
});
