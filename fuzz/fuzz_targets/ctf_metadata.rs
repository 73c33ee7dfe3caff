//! Trace metadata in its three forms: either refused with a position, or a trace class that
//! compiles.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match ctf::parse_metadata(bytes) {
        Ok(class) => {
            let _ = ctf::Procedure::new(class);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
