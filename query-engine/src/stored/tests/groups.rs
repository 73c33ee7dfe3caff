//! Groups that chunk summaries answer are those of the events.

use std::collections::BTreeMap;

use chunk_index::OwnedValue;
use query_language::Aggregate;
use row_formats::GroupRow;

use super::*;

/// Three streams of one agent, each with chunks of two seconds and events of three names.
fn streams(is_indexed: bool) -> Vec<StoredLeaf> {
    let leaf = |number: u64| {
        let line = |at: u64| {
            let name = ["read", "write", "open"][usize::try_from(at % 3).unwrap()];
            let ts = 1_700_000_000_000_000 + (at / 10) * 250_000 + number;
            format!(
                "{{\"name\":\"{name}\",\"cat\":\"c{number}\",\"pid\":1,\"tid\":1,\"ts\":{ts},\
                 \"dur\":{at},\"ph\":\"X\"}}\n"
            )
        };
        let packet = |packet: u64| {
            (packet * 80..(packet + 1) * 80)
                .map(line)
                .collect::<String>()
        };
        let packets: Vec<Vec<u8>> = (0..10 * number).map(|at| packet(at).into_bytes()).collect();
        let (leaf, bytes, _) = leaf_of(number, &packets, Codec::None);
        let data = Arc::new(Memory {
            bytes,
            ..Memory::default()
        });
        let made = is_indexed.then(|| index(stored(&leaf, &data, None), 1));
        stored(&leaf, &data, made)
    };
    (1..4).map(leaf).collect()
}

fn groups(is_indexed: bool, spec: &GroupSpec, request: &Request) -> (Vec<GroupRow>, Report) {
    let set = StorageSet::open(streams(is_indexed), None).unwrap();
    let sources = set.sources(request, &spec.fields()).unwrap();
    group_by(&sources, request, spec, Limits::default()).unwrap()
}

#[test]
fn groups_by_stream_are_the_same_from_summaries_and_from_events() {
    let second = 1_000_000_000;
    let all = Request::default();
    let window = Request {
        from: Some(1_700_000_001 * second),
        to: Some(1_700_000_007 * second),
        ..Request::default()
    };
    for keys in [
        "agent",
        "stream",
        "storage",
        "kind",
        "cat",
        "name,stream",
        "stream,kind",
    ] {
        for every in [None, Some(second), Some(60 * second)] {
            for aggregates in ["", "count", "count,sum:dur,p90:dur,min:ts"] {
                let spec = GroupSpec {
                    keys: keys.split(',').map(str::to_owned).collect(),
                    every,
                    aggregates: Aggregate::parse_list(aggregates).unwrap_or_default(),
                    ..GroupSpec::default()
                };
                for request in [&all, &window] {
                    let (read, of_events) = groups(false, &spec, request);
                    let (summarized, report) = groups(true, &spec, request);
                    assert_eq!(read, summarized, "{spec:?}");
                    assert_eq!(of_events.matched, report.matched, "{spec:?}");
                    assert!(
                        every == Some(second) || report.summarized > 0,
                        "{spec:?} {report:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn estimates_have_the_sums_of_each_stream() {
    let spec = |estimate| GroupSpec {
        every: Some(100_000_000),
        aggregates: Aggregate::parse_list("count").unwrap(),
        estimate,
        ..GroupSpec::by("stream")
    };
    let request = Request::default();
    let sums = |rows: &[GroupRow]| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows {
            let [_, stream, Some(OwnedValue::Uint(events))] = &row[..] else {
                panic!("{row:?}");
            };
            *sums.entry(format!("{stream:?}")).or_default() += events;
        }
        sums
    };
    let (exact, _) = groups(true, &spec(false), &request);
    let (estimated, report) = groups(true, &spec(true), &request);
    assert_eq!(sums(&exact), sums(&estimated));
    assert_eq!(
        sums(&exact).into_values().collect::<Vec<_>>(),
        [800, 1_600, 2_400]
    );
    assert_eq!((report.read, report.summarized), (4, 56), "{report:?}");
    assert!(
        !report.is_matched_estimated && report.notes.len() == 1,
        "{report:?}"
    );
}
