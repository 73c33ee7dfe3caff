//! What a record of a chain says. The record has a checksum of it, which is not part of the input.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use storage_format::chain_payload::{ChainSection, ChainSections};

fuzz_target!(|input: &[u8]| {
    let payload = Bytes::copy_from_slice(input);
    let sections: Vec<_> = ChainSections::of(&payload).collect();
    let whole: Result<Vec<ChainSection>, _> = sections.into_iter().collect();
    let Ok(whole) = whole else { return };
    let mut pieces = Vec::new();
    for section in &whole {
        // What was decoded is within the limits.
        section.encode(&mut pieces).unwrap();
    }
    let again: Result<Vec<_>, _> = ChainSections::of(&pieces.concat().into()).collect();
    assert_eq!(again.as_ref(), Ok(&whole));
});
