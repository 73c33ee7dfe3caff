//! Entry points for fuzz targets that bypass the checksums, which random bytes never match. Not for
//! readers.

pub use crate::attachments::fuzzing::{Attachment, attachment};

use crate::statistics::ChunkStatistics;
use crate::{BlockKind, FileDictionary, body, bundle, columns, provenance, sidecar, slowest};

/// Chunks per block.
const CHUNKS: usize = 3;

/// Decodes the body of a block.
pub fn block(kind: BlockKind, bytes: &[u8]) -> bool {
    match kind {
        BlockKind::Statistics => body::decode_statistics(bytes, CHUNKS).is_ok(),
        BlockKind::Sketches => {
            let mut chunks = vec![ChunkStatistics::default(); CHUNKS];
            body::decode_sketches(bytes, &mut chunks).is_ok()
        }
        BlockKind::Limits => body::decode_limits(bytes, CHUNKS).is_ok(),
        BlockKind::Filters => body::decode_filters(bytes, CHUNKS).is_ok(),
        BlockKind::Slowest => slowest::decode(bytes, CHUNKS).is_ok(),
        BlockKind::FileDictionary => FileDictionary::decode(bytes).is_ok(),
        BlockKind::Attachment => true,
    }
}

/// Decodes the footer of an `.idx`, gzip checkpoints included.
pub fn footer(bytes: &[u8]) -> bool {
    sidecar::footer::decode(bytes, 1 << 30).is_ok()
}

/// Decodes the footer of a `.cidx`.
pub fn columns_footer(bytes: &[u8]) -> bool {
    columns::decode_footer(bytes, 1 << 30).is_ok()
}

/// Decodes a column of times, and one of values.
pub fn column(bytes: &[u8], rows: usize) -> bool {
    columns::decode_any(bytes, rows)
}

/// Decodes the body of a `.pidx`.
pub fn provenance(bytes: &[u8]) -> bool {
    provenance::decode(bytes).is_ok()
}

/// Decodes the footer of a bundle whose sections end at an offset.
pub fn bundle_footer(bytes: &[u8], sections_end: u64) -> bool {
    bundle::decode_footer(bytes, sections_end)
}
