//! Leaving out derived streams.

use std::collections::{BTreeMap, BTreeSet};

use storage_format::{StorageId, StreamNames};

use super::StoredLeaf;

/// The leaves without those of derived streams whose source is among them, and the number of these
/// streams.
pub fn without_derived(mut leaves: Vec<StoredLeaf>) -> (Vec<StoredLeaf>, usize) {
    let mut streams: BTreeMap<StorageId, StreamNames> = BTreeMap::new();
    for StoredLeaf { leaf, .. } in &leaves {
        let names = streams.entry(leaf.storage).or_default();
        names.add(&leaf.path.agent, &leaf.path.stream);
    }
    let mut omitted = BTreeSet::new();
    leaves.retain(|StoredLeaf { leaf, .. }| {
        let (agent, stream) = (&leaf.path.agent, &leaf.path.stream);
        let names = streams.get(&leaf.storage);
        let is_derived =
            names.is_some_and(|names| names.has_source_of(leaf.path.kind, agent, stream));
        if is_derived {
            omitted.insert((leaf.storage, agent.clone(), stream.clone()));
        }
        !is_derived
    });
    (leaves, omitted.len())
}

/// The note of a query that leaves out this number of derived streams, if there are any.
pub fn derived_note(streams: usize) -> Option<String> {
    let what = match streams {
        0 => return None,
        1 => "1 derived stream is".to_owned(),
        _ => format!("{streams} derived streams are"),
    };
    Some(format!(
        "{what} omitted, which repeat events of others; --derived (\"derived\": true) includes \
         them"
    ))
}
