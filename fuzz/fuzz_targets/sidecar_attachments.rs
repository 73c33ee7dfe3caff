//! Attachments in sidecars: the first byte selects the type of attachment. A decoded attachment
//! must be the same after encoding and decoding it again.
#![no_main]

use chunk_index::fuzzing::{Attachment, attachment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((selector, bytes)) = input.split_first() else {
        return;
    };
    let kind = match selector % 7 {
        0 => Attachment::PacketFileFacts,
        1 => Attachment::PacketRanges(1 << 20),
        2 => Attachment::PacketRanges(u64::MAX),
        3 => Attachment::DftFacts,
        4 => Attachment::DftNames,
        5 => Attachment::LeafFacts,
        6 => Attachment::ChromeUnpaired,
        _ => Attachment::FileStamp,
    };
    attachment(kind, bytes);
});
