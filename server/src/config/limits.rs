//! The range of every number among the settings.

use std::fmt::Display;

use toml::{Table, Value};

use super::invalid::InvalidSetting;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const TIB: i64 = 1 << 40;
/// More than any disk, less than what overflows in sums.
const PIB: i64 = 1 << 50;
/// More than any machine has cores.
const THREADS_MAX: i64 = 1024;
const DAY_SECONDS: i64 = 86_400;
const YEAR_SECONDS: i64 = 366 * DAY_SECONDS;
/// Least grace of objects that no seal names. `cargo xtask fault` does not wait for a minute.
const GRACE_SECONDS_MIN: i64 = if cfg!(feature = "fault-points") {
    0
} else {
    60
};

/// Section, key, least and greatest value.
const LIMITS: &[(&str, &str, i64, i64)] = &[
    ("http", "connections_max", 1, 1_000_000),
    ("http", "connections_per_peer_max", 1, 1_000_000),
    ("http", "header_read_seconds", 1, DAY_SECONDS),
    ("http", "keep_alive_seconds", 1, DAY_SECONDS),
    // Common clients send more than a few KiB.
    ("http", "header_bytes_max", 8192, 16 * MIB),
    ("http", "header_count_max", 1, 10_000),
    ("http", "streams_max", 1, 10_000),
    // The window that HTTP/2 begins with, and its greatest.
    ("http", "receive_window_bytes", 65_535, 2 * GIB - 1),
    ("http", "body_idle_seconds", 1, DAY_SECONDS),
    ("http", "body_bytes_per_second_min", 1, GIB),
    ("http", "write_stall_seconds", 1, DAY_SECONDS),
    ("http", "json_bytes_max", 1024, GIB),
    ("http", "metadata_bytes_max", 1024, GIB),
    ("http", "drain_seconds", 0, DAY_SECONDS),
    ("audit", "file_bytes_max", 4096, TIB),
    ("audit", "files_max", 1, 10_000),
    ("tls", "reload_seconds", 1, DAY_SECONDS),
    ("otlp", "resources_max", 1, MIB),
    ("otlp", "scopes_max", 1, 16 * MIB),
    ("otlp", "spans_max", 1, 64 * MIB),
    ("otlp", "events_max", 1, 64 * MIB),
    ("otlp", "attributes_max", 1, 64 * MIB),
    // As deep as readers go.
    ("otlp", "value_depth_max", 1, 32),
    // The maximum packet size of the storage format.
    ("ingest", "packet_bytes_max", 1, 256 * MIB),
    ("ingest", "request_bytes_max", 1, TIB),
    ("ingest", "in_flight_bytes_max", 1, TIB),
    ("ingest", "agent_share_percent", 1, 100),
    ("ingest", "connection_share_percent", 1, 100),
    ("ingest", "protocol_share_percent", 1, 100),
    ("ingest", "batch_packets_max", 1, 16 << 20),
    // The range of zstd.
    ("ingest", "zstd_window_bytes_max", 1024, 2 * GIB),
    ("recording", "buffer_bytes_max", 0, TIB),
    ("recording", "recordings_max", 0, 10_000),
    ("recording", "waiting_bytes_max", 0, TIB),
    ("recording", "waiting_milliseconds", 0, DAY_SECONDS * 1000),
    ("recording", "standing_period_seconds", 1, YEAR_SECONDS),
    ("recording", "standing_bytes_max", 1, PIB),
    (
        "recording",
        "standing_age_seconds_max",
        1,
        100 * YEAR_SECONDS,
    ),
    ("range", "buffer_bytes_max", 1, TIB),
    ("query", "concurrent_max", 1, THREADS_MAX),
    ("query", "threads", 0, THREADS_MAX),
    ("query", "waiting_bytes_max", 0, TIB),
    ("query", "row_group_bytes_max", 1, TIB),
    ("query", "whole_answer_bytes_max", 0, TIB),
    ("query", "event_files_bytes_max", 0, PIB),
    ("query", "filter_cache_bytes_max", 0, TIB),
    ("query", "chunk_bytes", 1, TIB),
    ("query", "index_growth_bytes_min", 0, PIB),
    ("storage", "serializers", 0, THREADS_MAX),
    ("storage", "recovery_threads", 0, THREADS_MAX),
    // The range of zstd without its levels that only lose.
    ("storage", "zstd_level", -7, 22),
    ("storage", "commit_window_microseconds", 0, 60_000_000),
    ("storage", "open_files_max", 1, 1_000_000),
    ("storage", "preallocation_bytes_max", 0, TIB),
    ("storage", "data_file_bytes_max", 65_536, TIB),
    ("storage", "arranging_bytes_per_second_max", 0, TIB),
    (
        "storage",
        "full_file_arranging_bytes_per_second_max",
        0,
        TIB,
    ),
    ("storage", "disk_probe_seconds", 0, DAY_SECONDS),
    ("storage", "scrub_bytes_per_second", 0, TIB),
    ("storage", "scrub_pass_seconds_min", 1, YEAR_SECONDS),
    ("storage", "live_index_packets_max", 1, GIB),
    ("storage", "live_index_bytes_max", 1, TIB),
    ("storage", "live_index_seconds_max", 0, YEAR_SECONDS),
    ("storage", "uncovered_bytes_max", 1, PIB),
    ("storage", "time_bucket_seconds", 0, YEAR_SECONDS),
    ("storage", "index_cache_bytes_max", 0, TIB),
    ("storage", "storages_max", 1, 16 << 20),
    ("storage", "disk_stop_free_bytes", 0, PIB),
    ("storage", "disk_stop_free_percent", 0, 100),
    ("storage", "disk_resume_free_percent", 0, 100),
    ("object_store", "append_interval_ms", 0, 60_000),
    ("object_store", "evict_after_seconds", 0, 100 * YEAR_SECONDS),
    ("object_store", "local_bytes_max", 0, PIB),
    ("object_store", "cache_bytes_max", 0, PIB),
    ("object_store", "read_ahead_bytes_max", 0, TIB),
    ("object_store", "requests_max", 1, 65_536),
    ("object_store", "request_seconds", 1, DAY_SECONDS),
    ("object_store", "check_seconds", 1, DAY_SECONDS),
    (
        "object_store",
        "grace_seconds",
        GRACE_SECONDS_MIN,
        YEAR_SECONDS,
    ),
    ("retention", "age_seconds_max", 0, 100 * YEAR_SECONDS),
    ("retention", "bytes_max", 0, PIB),
    ("retention", "check_seconds", 1, DAY_SECONDS),
    ("quota", "bytes_max", 0, PIB),
    ("quota", "agent_bytes_max", 0, PIB),
    ("quota", "check_seconds", 1, DAY_SECONDS),
    ("io_trace", "bytes_max", 1, PIB),
    ("io_trace", "ring_bytes_max", 1, PIB),
    ("io_trace", "thread_records_max", 1, MIB),
    ("runtime", "threads", 0, THREADS_MAX),
];

/// The first number of a layer of settings that is out of range.
pub(super) fn out_of_range(layer: &Table) -> Option<InvalidSetting> {
    LIMITS.iter().find_map(|(section, key, min, max)| {
        let value = layer.get(*section)?.get(key)?;
        let Value::Integer(value) = value else {
            return None;
        };
        (!(min..=max).contains(&value)).then(|| beyond(section, key, *min, *max, value))
    })
}

/// A number as written, with more digits than fit in an integer.
pub(super) fn too_long(section: &str, key: &str, written: &str) -> Option<InvalidSetting> {
    let digits = written.strip_prefix(['-', '+']).unwrap_or(written);
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let mut limits = LIMITS.iter();
    let (.., min, max) =
        limits.find(|(of, name, ..)| is_number && (*of, *name) == (section, key))?;
    Some(beyond(section, key, *min, *max, &written))
}

fn beyond(section: &str, key: &str, min: i64, max: i64, value: &dyn Display) -> InvalidSetting {
    InvalidSetting {
        key: format!("{section}.{key}"),
        what: format!("is {value}"),
        remedy: format!("set it to a number from {min} to {max}"),
    }
}

#[cfg(test)]
mod tests {
    use toml::{Table, Value};

    use super::{LIMITS, out_of_range};
    use crate::config::layers::default_toml;

    #[test]
    fn every_number_has_a_range_with_its_default() {
        let defaults: Table = toml::from_str(default_toml()).unwrap();
        let mut numbers: Vec<(String, String)> = Vec::new();
        for (section, keys) in &defaults {
            for (key, value) in keys.as_table().unwrap() {
                if value.is_integer() {
                    numbers.push((section.clone(), key.clone()));
                }
            }
        }
        let mut limited: Vec<(String, String)> = LIMITS
            .iter()
            .map(|(section, key, ..)| ((*section).to_owned(), (*key).to_owned()))
            .collect();
        numbers.sort();
        limited.sort();
        assert_eq!(limited, numbers);
        assert_eq!(out_of_range(&defaults), None);
    }

    #[test]
    fn numbers_beyond_both_ends_are_refused() {
        for &(section, key, min, max) in LIMITS {
            let check = |value: i64| {
                let keys = Table::from_iter([(key.to_owned(), Value::Integer(value))]);
                let layer = Table::from_iter([(section.to_owned(), Value::Table(keys))]);
                out_of_range(&layer).map(|invalid| (invalid.key, invalid.what))
            };
            assert_eq!((check(min), check(max)), (None, None), "{section}.{key}");
            for value in [min - 1, max + 1] {
                let refused = (format!("{section}.{key}"), format!("is {value}"));
                assert_eq!(check(value), Some(refused));
            }
        }
    }
}
