//! Sidecars: the first byte selects whether the rest is a complete file, or the body of a part that
//! checksums protect in a file.
#![no_main]

use chunk_index::{BlockKind, Columns, Provenance, Sidecar, fuzzing};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((door, bytes)) = input.split_first() else {
        return;
    };
    match door % 12 {
        0 => {
            if let Ok(index) = Sidecar::read(bytes) {
                let written = index.encode().expect("a decoded index is complete");
                assert_eq!(Sidecar::read(&written).as_ref(), Ok(&index));
            }
        }
        1 => {
            let _ = Provenance::read(bytes);
        }
        2 => {
            fuzzing::footer(bytes);
        }
        3 => {
            fuzzing::provenance(bytes);
        }
        4 => {
            fuzzing::block(BlockKind::Statistics, bytes);
        }
        5 => {
            fuzzing::block(BlockKind::Sketches, bytes);
        }
        6 => {
            fuzzing::block(BlockKind::Limits, bytes);
        }
        7 => {
            fuzzing::block(BlockKind::Filters, bytes);
        }
        8 => {
            let _ = Columns::open(bytes, bytes.len() as u64);
        }
        9 => {
            fuzzing::columns_footer(bytes);
        }
        10 => {
            fuzzing::block(BlockKind::FileDictionary, bytes);
        }
        _ => {
            let Some((rows, bytes)) = bytes.split_first() else {
                return;
            };
            fuzzing::column(bytes, usize::from(*rows));
        }
    }
});
