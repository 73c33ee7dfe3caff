//! Leaving out derived streams.

use std::collections::{BTreeMap, BTreeSet};

use storage_format::{AgentId, StorageId};
use trace_kinds::is_derived;

use super::StoredLeaf;

/// The leaves without those of derived streams whose source is among them, and the number of these
/// streams.
pub fn without_derived(leaves: Vec<StoredLeaf>) -> (Vec<StoredLeaf>, usize) {
    let mut streams: BTreeMap<(StorageId, AgentId), BTreeSet<String>> = BTreeMap::new();
    let key = |stored: &StoredLeaf| (stored.leaf.storage, stored.leaf.path.agent.clone());
    for stored in &leaves {
        let names = streams.entry(key(stored)).or_default();
        names.insert(stored.leaf.path.stream.as_str().to_owned());
    }
    let mut derived = BTreeSet::new();
    let mut kept = Vec::with_capacity(leaves.len());
    for stored in leaves {
        let path = &stored.leaf.path;
        let (key, stream) = (key(&stored), path.stream.as_str());
        let others = streams.get(&key).into_iter().flatten().map(String::as_str);
        if is_derived(path.kind, stream, others) {
            derived.insert((key, stream.to_owned()));
        } else {
            kept.push(stored);
        }
    }
    (kept, derived.len())
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
