//! Attachments in sidecars: the first byte selects the type of attachment. A decoded attachment
//! must be the same after encoding and decoding it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use query_engine::fuzzing::{Attachment, attachment};

fuzz_target!(|input: &[u8]| {
    let Some((door, bytes)) = input.split_first() else {
        return;
    };
    let kind = match door % 6 {
        0 => Attachment::PacketFacts,
        1 => Attachment::PacketPlaces(1 << 20),
        2 => Attachment::PacketPlaces(u64::MAX),
        3 => Attachment::DftFacts,
        4 => Attachment::DftNames,
        _ => Attachment::LeafFacts,
    };
    attachment(kind, bytes);
});
