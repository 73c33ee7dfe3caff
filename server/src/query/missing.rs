//! What is missing in storages, which no query finds by reading.

use query_engine::Skipped;
use storage_core::Engine;
use storage_format::StorageId;

/// What is missing in the storages since they were repaired, or is not known: what is behind a
/// damage of their log, or what is missing if their repair file cannot be read.
pub(crate) fn missing(engine: &Engine, storages: &[StorageId]) -> Vec<Skipped> {
    let mut found = Vec::new();
    let mut add = |id, parts, reason| {
        found.push(Skipped {
            storage: Some(id),
            parts,
            reasons: vec![reason],
        });
    };
    for &id in storages {
        let storages = engine.storages();
        // One that was deleted meanwhile cannot be read, either.
        let packets = storages.missing_packets(id).unwrap_or(0);
        if packets > 0 {
            let since = "packets are missing since it was repaired";
            add(
                id,
                packets,
                format!("storage {id}: up to {packets} {since}"),
            );
        }
        if let Ok(Some(reason)) = storages.unknown(id) {
            add(id, 1, format!("storage {id}: {reason}"));
        }
    }
    found
}
