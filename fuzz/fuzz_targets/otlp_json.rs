//! OTLP requests in JSON: an accepted request is a valid request in protobuf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace_kinds::otlp::{check, to_protobuf};

fuzz_target!(|input: &[u8]| {
    let Ok(request) = to_protobuf(input) else {
        return;
    };
    // JSON values may be nested deeper than the reader allows; nothing else may be wrong.
    if let Err(error) = check(&request) {
        assert!(error.to_string().contains("nest deeper"), "{error}");
    }
});
