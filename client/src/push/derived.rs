//! Files that `tracehold index` wrote beside the traces of a folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chunk_index::FileType;

/// Endings of indexes, columns and provenance.
const ENDINGS: [&[u8]; 3] = [b".idx", b".cidx", b".pidx"];

/// Whether a file is derived from one beside it: it is named after that, and its content is an
/// index. A file that only has such a name, or such a content, is a file like any other.
pub(super) fn is_derived(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(*ending));
    // A downloaded storage has `ID.idx` beside `ID.itdata`.
    let is_beside = |stem: &[u8]| {
        let of_trace = path.with_file_name(OsStr::from_bytes(stem));
        let of_data = path.with_file_name(OsStr::from_bytes(&[stem, b".itdata"].concat()));
        of_trace.is_file() || of_data.is_file()
    };
    stem.is_some_and(|stem| !stem.is_empty() && is_beside(stem)) && has_index_signature(path)
}

/// A file that cannot be read is none: pushing it says why.
fn has_index_signature(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && FileType::of(&head).is_some()
}
