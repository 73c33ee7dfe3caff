//! ZIP archives as an import reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // An archive is accepted or refused; it must not cause a panic or use much memory.
    let _ = storage_core::check_archive(input);
});
