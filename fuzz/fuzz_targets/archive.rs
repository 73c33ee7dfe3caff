//! ZIP archives as an import reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Whether it is taken is all there is to see; what must not happen is a panic or much memory.
    let _ = storage_core::check_archive(input);
});
