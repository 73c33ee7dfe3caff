//! What summaries answer, other than which chunks need not be read.

use super::*;

#[test]
fn each_tier_counts_what_it_ruled_out() {
    let hex = |n: u64| {
        Some(OwnedValue::Str(
            format!("{:016x}", crate::value::mix(n)).into_bytes().into(),
        ))
    };
    let text = |text: &str| Some(OwnedValue::Str(text.as_bytes().into()));
    let chunk = |name: &str, pid, first: u64| -> Vec<Event> {
        (first..first + 2_000)
            .map(|n| {
                let pid = Some(OwnedValue::Uint(pid));
                [text(name), text("c"), None, None, pid, None, hex(n)]
            })
            .collect()
    };
    let chunks = [
        chunk("write", 1, 0),
        chunk("read", 2, 0),
        chunk("read", 1, 10_000),
        chunk("read", 1, 0),
    ];
    let index = build(&IndexConfig::new(["pid", "h"]), &chunks);
    assert!(index.filter(&FieldPath::new("h"), 0).is_some());
    let wanted = format!("{:016x}", crate::value::mix(77));
    let filter = parse(&format!("name == 'read' and pid == 1 and h == '{wanted}'"));
    let pruning = Pruner::new(&filter).run(&index);
    assert_eq!(pruning.candidates, [3]);
    assert_eq!(pruning.ruled_out, [1, 1, 1]);
}

#[test]
fn exact_summaries_answer_aggregates_without_reading() {
    let chunks = trap_chunks();
    let index = build(&IndexConfig::new(["pid"]), &chunks);
    let counts = |text: &str| -> Vec<Option<u64>> {
        let pruner = Pruner::new(&parse(text));
        (0..3).map(|chunk| pruner.count(&index, chunk)).collect()
    };
    assert_eq!(counts("name == 'read'"), [Some(1), Some(2), Some(1)]);
    assert_eq!(
        counts("cat == 'POSIX' and name != 'read'"),
        [Some(0), Some(0), Some(1)]
    );
    assert_eq!(counts("pid == 1028570"), [Some(0), Some(2), Some(0)]);
    assert_eq!(counts("ts >= 200"), [Some(1), Some(2), Some(2)]);
    // Inside a group only reading can decide.
    assert_eq!(counts("ts >= 1050"), [Some(0), None, Some(2)]);

    let pruner = Pruner::new(&parse("name ~ 'read|write'"));
    let mut sum = ChunkStatistics::default();
    for chunk in 0..3 {
        sum.merge(&pruner.matched(&index, chunk).unwrap());
    }
    let by_name = sum.group_by(|group| group.name.clone()).unwrap();
    let read = &by_name[&Some(b"read"[..].into())];
    assert_eq!(read.events, 4);
    assert_eq!(read.durations.sum, (99 + 5 + 10 + 7) * 1_000);
    assert_eq!(read.durations.range(), Some((5_000, 99_000)));
    assert_eq!(
        sum.times().map(|times| (times.first, times.last)),
        Some((100_000, 6_000_000))
    );
}

#[test]
fn slow_events_are_found_without_reading_the_others() {
    let text = |text: &str| Some(OwnedValue::Str(text.as_bytes().into()));
    let nanos = |nanos: i64| Some(OwnedValue::Int(nanos));
    let chunk: Vec<Event> = (0..1_000_i64)
        .map(|n| {
            let (name, dur) = match n % 100 {
                7 => ("read", 5_000_000_001 + n),
                8 => ("sync", 9_000_000_000),
                _ => ("read", n),
            };
            [
                text(name),
                text("c"),
                nanos(n),
                nanos(dur),
                None,
                None,
                None,
            ]
        })
        .collect();
    let index = build(&IndexConfig::new([]), &[chunk]);
    let found = |text: &str| {
        let records = Pruner::new(&parse(text)).slowest(&index, 0)?;
        Some(records.len())
    };
    // Ten reads and ten syncs are slow; sixteen records are stored.
    assert_eq!(found("dur > 9s"), Some(16));
    assert_eq!(found("dur > 5000000507ns"), Some(16));
    assert_eq!(found("dur > 5s"), None);
    assert_eq!(
        found("name == 'sync'"),
        Some(16),
        "all records of the group are stored"
    );
    assert_eq!(found("name == 'sync' or dur < 1us"), None);
    assert_eq!(found("not dur <= 9s"), Some(16));
}

#[test]
fn complete_chunks_are_routed_by_their_events() {
    let index = build(&IndexConfig::new([]), &trap_chunks());
    let routes = |texts: &[&str]| -> Vec<Option<usize>> {
        let pruners: Vec<Pruner> = texts.iter().map(|text| Pruner::new(&parse(text))).collect();
        (0..3)
            .map(|chunk| Pruner::route(&pruners, &index, chunk))
            .collect()
    };
    assert_eq!(
        routes(&["cat == 'STDIO'", "cat == 'POSIX'"]),
        [None, Some(1), Some(1)]
    );
    assert_eq!(
        routes(&["dur >= 0", "name == 'fsync'"]),
        [Some(0), Some(0), None]
    );
}

#[test]
fn many_chunks_are_in_several_blocks() {
    let chunks: Vec<Vec<Event>> = (0..BLOCK_CHUNKS as u64 * 2 + 3)
        .map(|n| {
            let name = Some(OwnedValue::Str(format!("n{n}").into_bytes().into()));
            vec![[
                name,
                None,
                None,
                None,
                Some(OwnedValue::Uint(n)),
                None,
                None,
            ]]
        })
        .collect();
    let config = IndexConfig::new(["pid"]);
    for text in [
        "name == 'n5'",
        "pid == 130",
        "pid >= 60 and pid < 70",
        "name ~ '^n12.$'",
    ] {
        check(&parse(text), &config, &chunks);
    }
    let index = build(&config, &chunks);
    let bytes = index.encode().unwrap();
    let Ok(Opened::Sidecar(sidecar)) = Sidecar::open(&bytes, bytes.len() as u64) else {
        panic!("does not open");
    };
    let pruner = Pruner::new(&parse("pid == 130"));
    let pruning = Pruning {
        candidates: vec![130],
        ..Pruning::begin(sidecar.index())
    };
    let wanted = pruner.wanted(&sidecar, Tier::Dictionaries, &pruning);
    assert_eq!(
        wanted.len(),
        1,
        "only the block of the candidate: {wanted:?}"
    );
    assert_eq!((wanted[0].dimension, wanted[0].number), (2, 2));
}
