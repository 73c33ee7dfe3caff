//! Sums over the packets of a storage.

use std::ops::Bound::{Included, Unbounded};

use storage_format::{data_file::LeafPath, is_derived, storage_file::Totals};

use super::IndexTree;

impl IndexTree {
    /// Sums over all packets; the events of derived streams, which repeat those of others, are
    /// not counted.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for leaf in self.leaves.values() {
            let is_repeating = self.is_derived(&leaf.path);
            for segment in leaf.segments() {
                let mut added = segment.totals;
                if is_repeating {
                    added.events = 0;
                }
                totals.add(&added);
            }
        }
        totals
    }

    /// Whether a stream is derived from another one of its agent.
    fn is_derived(&self, path: &LeafPath) -> bool {
        let of_agent = self.by_stream.get(&path.agent);
        is_derived(path.kind, path.stream.as_str(), |source| {
            let from = (Included(source), Unbounded);
            let streams = of_agent.map(|streams| streams.range::<str, _>(from));
            let streams = streams.into_iter().flatten();
            streams.map(|(stream, _)| stream.as_str())
        })
    }
}
