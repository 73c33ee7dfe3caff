//! The engine's counters, in the text format of Prometheus.

use std::io::Write;

use storage_core::{Counter, Counters, LATENCY_BOUNDS_SECONDS, Latency};

/// A counter or gauge of the engine.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Counters) -> &Counter,
}

macro_rules! metrics {
    ($($kind:ident $name:ident = $field:ident, $help:literal;)*) => {
        &[$(Metric {
            name: stringify!($name),
            kind: stringify!($kind),
            help: $help,
            value: |counters| &counters.$field,
        }),*]
    };
}

const METRICS: &[Metric] = metrics! {
    counter packets_arrived_total = packets_arrived, "Packets accepted for writing.";
    counter packets_durable_total = packets_durable, "Packets made durable.";
    counter packets_repeated_total = packets_repeated, "Packets that were pushed before.";
    counter packets_failed_total = packets_failed, "Accepted packets that could not be written.";
    counter packet_raw_bytes_total = raw_bytes, "Bytes of durable packets as sent.";
    counter packet_stored_bytes_total = stored_bytes, "Bytes of durable packets as stored.";
    counter written_bytes_total = written_bytes, "Bytes of frames written.";
    counter write_errors_total = write_errors, "Failed writes.";
    counter files_published_total = files_published, "Small files published atomically.";
    counter index_parts_total = index_parts, "Index parts written.";
    counter index_merges_total = index_merges, "Merges of index parts.";
    counter index_parts_merged_total = index_parts_merged, "Index parts that merged ones replaced.";
    counter index_merge_failures_total = index_merge_failures, "Merges of index parts that failed.";
    counter index_rebuilds_total = index_rebuilds, "Attempts to rebuild the index of a finalized storage.";
    counter index_rebuild_failures_total = index_rebuild_failures, "Attempts of these that failed.";
    counter files_arranged_total = files_arranged, "Full data files that were arranged while their storage was open.";
    counter file_arranging_failures_total = file_arranging_failures, "Attempts to arrange such a file that failed.";
    gauge live_index_bytes = live_index_bytes, "Bytes of the live indexes of all storages.";
    gauge channels_open = channels_open, "Data files open for writing.";
    gauge in_flight_bytes = in_flight_bytes, "Packet bytes between arrival and receipt.";
    gauge waiting_for_room = waiting_for_room, "Requests waiting for admission of their packets.";
    gauge serializer_jobs = serializer_jobs, "Serializer jobs queued or running.";
    counter refused_busy_total = refused_busy, "Pushes refused for bytes in flight.";
    counter refused_disk_low_total = refused_disk_low, "Pushes refused because the disk was low.";
    counter refused_quota_total = refused_quota, "Pushes refused because a quota was used up.";
    gauge usage_unknown_storages = usage_unknown_storages, "Storages that quotas do not count yet, because they are not recovered or cannot be read.";
    gauge disk_free_bytes = disk_free_bytes, "Free bytes of the data folder's file system.";
    gauge disk_total_bytes = disk_total_bytes, "Bytes of the data folder's file system.";
    gauge disk_failed = disk_failed, "1 while writes to the disk of the data folder fail or do not complete.";
    gauge disk_low = disk_low, "1 while ingest is stopped because the disk is low.";
    gauge recovering_storages = recovering_storages, "Storages not recovered yet after the start.";
    gauge recovery_bytes = recovery_bytes, "Bytes of data files to scan after the start.";
    gauge recovery_scanned_bytes = recovery_scanned_bytes, "The bytes of these that were scanned.";
    gauge failed_storages = failed_storages, "Storages in state FAILED.";
    counter checked_bytes_total = checked_bytes, "Bytes of finalized storages that were compared with checksums.";
    counter damaged_blocks_total = damaged_blocks, "Blocks of finalized storages found damaged.";
    counter scrub_bytes_total = scrub_bytes, "Bytes read by the scrub.";
    counter scrub_damage_total = scrub_places, "Damaged places that the scrub found.";
    counter scrub_passes_total = scrub_passes, "Passes of the scrub over all storages.";
    gauge scrub_last_pass_timestamp_seconds = scrub_finished_seconds, "End of the last pass over the storages that could be read; 0 without one.";
    gauge io_thread_failed = io_thread_failed, "1 when nothing can be written until a restart.";
    gauge index_cache_bytes = index_cache_bytes, "Bytes of index blocks in memory.";
    counter index_cache_hits_total = index_cache_hits, "Index blocks found in memory.";
    counter index_cache_misses_total = index_cache_misses, "Index blocks read from disk.";
    counter packets_dropped_total = packets_dropped, "Droppable packets that were dropped.";
    counter dropped_bytes_total = dropped_bytes, "Bytes of dropped packets.";
    gauge droppable_bytes = droppable_bytes, "Bytes of packets that can be dropped now.";
};

/// Appends all counters of the engine.
pub(crate) fn render_engine(counters: &Counters, text: &mut Vec<u8>) {
    for Metric {
        name,
        kind,
        help,
        value,
    } in METRICS
    {
        line(text, name, kind, help, value(counters).get());
    }
    histogram(
        text,
        "write_seconds",
        "Time from submission to completion of writes.",
        &counters.writes,
    );
    histogram(
        text,
        "sync_seconds",
        "Time of syncs of data files.",
        &counters.syncs,
    );
    histogram(
        text,
        "disk_probe_seconds",
        "Time of the small writes that show whether the disk works.",
        &counters.disk_probe_seconds,
    );
}

fn line(text: &mut Vec<u8>, name: &str, kind: &str, help: &str, value: u64) {
    put(
        text,
        format_args!(
            "# HELP tracehold_storage_{name} {help}\n# TYPE tracehold_storage_{name} {kind}\n\
             tracehold_storage_{name} {value}\n",
        ),
    );
}

fn histogram(text: &mut Vec<u8>, name: &str, help: &str, latency: &Latency) {
    let snapshot = latency.snapshot();
    put(
        text,
        format_args!(
            "# HELP tracehold_storage_{name} {help}\n# TYPE tracehold_storage_{name} histogram\n"
        ),
    );
    let bounds = LATENCY_BOUNDS_SECONDS.map(|bound| bound.to_string());
    let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
    let mut cumulated = 0;
    for (bound, count) in bounds.zip(snapshot.buckets) {
        cumulated += count;
        put(
            text,
            format_args!("tracehold_storage_{name}_bucket{{le=\"{bound}\"}} {cumulated}\n"),
        );
    }
    put(
        text,
        format_args!(
            "tracehold_storage_{name}_sum {}\ntracehold_storage_{name}_count {cumulated}\n",
            snapshot.sum_seconds,
        ),
    );
}

fn put(text: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line)
        .expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use storage_core::Counters;

    use super::render_engine;

    #[test]
    fn counters_and_histograms_are_complete() {
        let mut text = Vec::new();
        render_engine(&Counters::default(), &mut text);
        let text = String::from_utf8(text).unwrap();
        for line in [
            "tracehold_storage_packets_durable_total 0",
            "tracehold_storage_sync_seconds_bucket{le=\"0.00005\"} 0",
            "tracehold_storage_sync_seconds_bucket{le=\"+Inf\"} 0",
            "tracehold_storage_sync_seconds_count 0",
        ] {
            assert!(
                text.lines().any(|each| each == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
