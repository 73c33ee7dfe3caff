//! Sidecars: the first byte selects whether the rest is a complete file, or the body of a part that
//! checksums protect in a file.
#![no_main]

use chunk_index::{BlockKind, Bundle, Columns, Provenance, Sidecar, fuzzing};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((door, bytes)) = input.split_first() else {
        return;
    };
    match door % 14 {
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
        11 => {
            let _ = Bundle::check(bytes.len() as u64, &mut |range| {
                let [begin, end] = [range.start, range.end].map(|at| at as usize);
                let read = bytes.get(begin..end);
                Ok(read.ok_or(std::io::ErrorKind::UnexpectedEof)?.to_vec())
            });
        }
        12 => {
            let Some((end, bytes)) = bytes.split_first_chunk() else {
                return;
            };
            fuzzing::bundle_footer(bytes, u64::from_le_bytes(*end));
        }
        _ => {
            let Some((rows, bytes)) = bytes.split_first() else {
                return;
            };
            fuzzing::column(bytes, usize::from(*rows));
        }
    }
});
