//! Metrics of the object store.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use object_tier::Requests;
use storage_core::CachedBytes;

use crate::tier::Status;
use crate::tier::chains::ChainCounts;

/// Appends what was asked of the store, and what of it is here.
pub(crate) fn render_tier(
    (requests, cached, status): (&Requests, &CachedBytes, &Status),
    chains: Option<&ChainCounts>,
    text: &mut Vec<u8>,
) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut all = String::from(
        "# HELP tracehold_object_store_requests_total Requests to the object store, by operation.\n\
         # TYPE tracehold_object_store_requests_total counter\n",
    );
    for (operation, count) in [
        ("get", &requests.gets),
        ("put", &requests.puts),
        ("delete", &requests.deletes),
        ("list", &requests.lists),
    ] {
        // Writing to memory does not fail.
        let _ = writeln!(
            all,
            "tracehold_object_store_requests_total{{operation=\"{operation}\"}} {}",
            of(count)
        );
    }
    counters(requests, cached, &mut all);
    if let Some(chains) = chains {
        chain_counters(chains, &mut all);
    }
    let gauges = [
        (
            "cached_bytes",
            "Bytes of evicted storages that are here.",
            cached.here,
        ),
        (
            "waiting_uploads",
            "Finalized storages that wait for their upload.",
            status.waiting,
        ),
        (
            "superseded_copies",
            "Copies of storages in the folder `superseded`, which other nodes have instead.",
            status.superseded,
        ),
        (
            "is_failing",
            "1 while the object store does not answer as it must.",
            u64::from(status.failure().is_some()),
        ),
    ];
    for (name, help, value) in gauges {
        metric(&mut all, (name, help, "gauge"), value);
    }
    text.extend_from_slice(all.as_bytes());
}

fn counters(requests: &Requests, cached: &CachedBytes, all: &mut String) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = [
        (
            "read_bytes_total",
            "Bytes read from the object store.",
            of(&requests.bytes_read),
        ),
        (
            "written_bytes_total",
            "Bytes written to the object store.",
            of(&requests.bytes_written),
        ),
        (
            "failures_total",
            "Requests to the object store that failed.",
            of(&requests.failures),
        ),
        (
            "hedges_total",
            "Second tries of slow reads.",
            of(&requests.hedges),
        ),
        (
            "cache_hits_total",
            "Granules of 64 KiB that readers found here.",
            cached.hits,
        ),
        (
            "cache_misses_total",
            "Granules of 64 KiB that were fetched.",
            cached.misses,
        ),
    ];
    for (name, help, value) in counters {
        metric(all, (name, help, "counter"), value);
    }
}

fn chain_counters(chains: &ChainCounts, all: &mut String) {
    let counters = [
        (
            "chain_records_total",
            "Records that were appended to chains of open storages.",
            &chains.records,
        ),
        (
            "chain_packets_total",
            "Packets in these records.",
            &chains.packets,
        ),
        (
            "chain_bytes_total",
            "Bytes of these records.",
            &chains.bytes,
        ),
    ];
    for (name, help, counter) in counters {
        let value = counter.load(Ordering::Relaxed);
        metric(all, (name, help, "counter"), value);
    }
}

fn metric(all: &mut String, (name, help, kind): (&str, &str, &str), value: u64) {
    let name = format!("tracehold_object_store_{name}");
    let _ = writeln!(
        all,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
    );
}
