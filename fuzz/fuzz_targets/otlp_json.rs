//! OTLP requests in JSON: what is taken is a sound request in protobuf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace_kinds::otlp::{check, to_protobuf};

fuzz_target!(|input: &[u8]| {
    let Ok(request) = to_protobuf(input) else {
        return;
    };
    // Values may nest deeper in JSON than a reader of ours goes; nothing else may be wrong.
    if let Err(error) = check(&request) {
        assert!(error.to_string().contains("nest deeper"), "{error}");
    }
});
