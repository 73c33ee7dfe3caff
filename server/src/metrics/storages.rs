//! Storages by state.

use std::fmt::Write as _;

use storage_core::StorageCounts;

/// Appends the number of storages in each state.
pub(crate) fn render_storages(counts: &StorageCounts, text: &mut Vec<u8>) {
    let mut all = String::from(
        "# HELP tracehold_storage_storages Storages, by state.\n\
         # TYPE tracehold_storage_storages gauge\n",
    );
    for (state, count) in &counts.by_state {
        // Writing to memory does not fail.
        let _ = writeln!(
            all,
            "tracehold_storage_storages{{state=\"{state}\"}} {count}"
        );
    }
    let poisoned = counts.poisoned;
    let _ = write!(
        all,
        "# HELP tracehold_storage_poisoned_storages Storages that a failed write or sync has made \
         read-only since the start.\n\
         # TYPE tracehold_storage_poisoned_storages gauge\n\
         tracehold_storage_poisoned_storages {poisoned}\n"
    );
    let damaged = counts.damaged;
    let _ = write!(
        all,
        "# HELP tracehold_storage_damaged_storages Finalized storages with damage that was found \
         since the start.\n\
         # TYPE tracehold_storage_damaged_storages gauge\n\
         tracehold_storage_damaged_storages {damaged}\n"
    );
    text.extend_from_slice(all.as_bytes());
}
