//! The pruner, compared with the events from which the chunks were built.

use std::collections::BTreeSet;

use proptest::prelude::*;
use query_language::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, FieldTable, Filter, Number, Program, Query,
    Scalar, Value,
};

use super::{Pruner, Pruning, Tier};
use crate::{
    BLOCK_CHUNKS, Chunk, ChunkBuilder, ChunkStatistics, ColumnFilter, Columns, ColumnsOpened,
    ColumnsWriter, DictionaryEntry, FileDictionary, Identity, Index, IndexConfig, Matches, Opened,
    OwnedValue, Sidecar,
};

mod generated;
mod summaries;

/// The fields of the events below, in this order.
const FIELDS: [&str; 7] = ["name", "cat", "ts", "dur", "pid", "args.x", "args.h"];

type Event = [Option<OwnedValue>; FIELDS.len()];

fn table() -> FieldTable {
    let mut table = FieldTable::new();
    for field in FIELDS {
        table.insert(&FieldPath::new(field));
    }
    table
}

fn row(event: &Event) -> Vec<Option<Value<'_>>> {
    event
        .iter()
        .map(|value| value.as_ref().map(OwnedValue::as_value))
        .collect()
}

/// Small bounds, so that few events already drop dictionaries and overflow.
fn small_config() -> IndexConfig {
    let mut config = IndexConfig::new(["pid", "x", "h"]);
    config.expected_entries = 1;
    config.dictionary_bytes_max = 24;
    config
}

fn build(config: &IndexConfig, chunks: &[Vec<Event>]) -> Index {
    build_by_shape(config, chunks, &[])
}

/// Numbers of shapes: events of one shape have the same values of some fields.
struct Shapes<'s> {
    shared: &'s [&'s str],
    known: Vec<String>,
}

impl Shapes<'_> {
    fn new<'s>(shared: &'s [&'s str]) -> Shapes<'s> {
        Shapes {
            shared,
            known: Vec::new(),
        }
    }

    fn of(&mut self, event: &Event) -> Option<u32> {
        let values = FIELDS.iter().zip(event);
        let values: Vec<_> = values.filter(|(f, _)| self.shared.contains(f)).collect();
        let values = format!("{values:?}");
        let place = self.known.iter().position(|known| *known == values);
        let place = place.unwrap_or_else(|| {
            self.known.push(values);
            self.known.len() - 1
        });
        (!self.shared.is_empty()).then(|| u32::try_from(place).unwrap())
    }
}

/// The index, built from events whose shape determines the values of `shared`.
fn build_by_shape(config: &IndexConfig, chunks: &[Vec<Event>], shared: &[&str]) -> Index {
    let mut index = Index::new(config);
    let mut fields = table();
    let mut builder = ChunkBuilder::new(config.clone(), &mut fields);
    builder.share_by_shape(shared);
    assert_eq!(fields.len(), FIELDS.len());
    let mut shapes = Shapes::new(shared);
    for chunk in chunks {
        // The record of an event is its index in the chunk.
        for (place, event) in (0_u64..).zip(chunk) {
            let shape = shapes.of(event);
            builder.add_record(&row(event), shape, place, &place.to_le_bytes());
        }
        index.push(Chunk::default(), builder.finish());
    }
    index
}

/// The index with a file dictionary of the values that a field has in all chunks but the last.
fn with_file_dictionary(config: &IndexConfig, chunks: &[Vec<Event>], field: &str) -> Index {
    let place = FIELDS.iter().position(|known| *known == field).unwrap();
    let field = FieldPath::new(field);
    let mut fields = table();
    let mut builder = ChunkBuilder::new(config.clone(), &mut fields);
    builder.collect_distinct(&field);
    let mut summaries = Vec::new();
    for chunk in chunks {
        for (number, event) in (0_u64..).zip(chunk) {
            builder.add_record(&row(event), None, number, &number.to_le_bytes());
        }
        summaries.push(builder.finish());
    }
    let values = chunks[..chunks.len() - 1].iter().flatten();
    let values = values.filter_map(|event| event[place].as_ref());
    let members: BTreeSet<DictionaryEntry> = values
        .filter_map(|value| DictionaryEntry::of(value.as_value()))
        .collect();
    let file_dictionary = FileDictionary::new(members.into_iter().rev()).unwrap();
    let members = builder.take_distinct();
    let used = members.is_some_and(|members| {
        members.build_filters(Some(&file_dictionary), config, &mut summaries)
    });
    let mut index = Index::new(config);
    for summary in summaries {
        index.push(Chunk::default(), summary);
    }
    if used {
        index.set_file_dictionary(&field, file_dictionary);
    }
    index
}

/// The statistics of just these events, from the builder.
fn statistics<'a>(events: impl Iterator<Item = &'a Event>) -> ChunkStatistics {
    let mut builder = ChunkBuilder::new(IndexConfig::new([]), &mut table());
    events.for_each(|event| builder.add(&row(event)));
    builder.finish().statistics
}

/// Checks all properties of a filter and an index against the events of the index, with and without
/// shapes.
fn check(filter: &Filter, config: &IndexConfig, chunks: &[Vec<Event>]) {
    let index = build(config, chunks);
    let shaped = build_by_shape(config, chunks, &["name", "cat", "pid"]);
    check_index(filter, &index, chunks);
    check_index(filter, &shaped, chunks);
    for field in ["args.x", "args.h"] {
        check_index(filter, &with_file_dictionary(config, chunks, field), chunks);
    }
    check_columns(filter, config, chunks, &[]);
    check_columns(filter, config, chunks, &["name", "cat", "pid"]);
    if config.expected_entries > 1 {
        // Both are the same when no dictionary was dropped.
        let bytes = |index: &Index| index.encode().expect("all is loaded");
        assert_eq!(bytes(&shaped), bytes(&index));
    }
}

/// Columns give the same answer as the events.
fn check_columns(filter: &Filter, config: &IndexConfig, chunks: &[Vec<Event>], shared: &[&str]) {
    let program = Program::compile(filter, &mut table());
    let (file, index) = columns_of(config, chunks, shared);
    let length = file.len() as u64;
    let Ok(ColumnsOpened::Columns(columns)) = Columns::open(&file, length) else {
        panic!("does not open");
    };
    assert!(columns.belong_to(&index));
    let filter_of_columns = ColumnFilter::new(filter);
    for (chunk, events) in chunks.iter().enumerate() {
        let truth = events.iter().filter(|event| program.matches(&row(event)));
        let truth = truth.count() as u64;
        let wanted = filter_of_columns.wanted(&columns, chunk);
        let bytes_of =
            |range: std::ops::Range<u64>| file[range.start as usize..range.end as usize].to_vec();
        let loaded: Vec<_> = wanted.iter().map(|b| (*b, bytes_of(b.range()))).collect();
        match filter_of_columns.matches(&columns, chunk, &loaded) {
            Ok(Matches::Exactly(matches)) => assert_eq!(matches, truth, "{filter}"),
            Ok(Matches::AtMost(matches)) => assert!(matches >= truth, "{filter}: {matches}"),
            Err(error) => panic!("{filter}: {error}"),
        }
    }
}

/// The bytes of a columns file, and the index that it belongs to.
fn columns_of(config: &IndexConfig, chunks: &[Vec<Event>], shared: &[&str]) -> (Vec<u8>, Index) {
    let mut index = Index::new(config);
    let dimensions = config.dimensions().iter().map(FieldPath::as_str);
    let mut writer = ColumnsWriter::new(Vec::new(), dimensions).unwrap();
    let mut builder = ChunkBuilder::new(config.clone(), &mut table());
    builder.share_by_shape(shared);
    builder.keep_columns();
    let mut shapes = Shapes::new(shared);
    for chunk in chunks {
        for event in chunk {
            builder.add_record(&row(event), shapes.of(event), 0, b"");
        }
        writer
            .chunk(&Chunk::default(), builder.finish_columns().unwrap())
            .unwrap();
        index.push(Chunk::default(), builder.finish());
    }
    (writer.finish(&Identity::default()).unwrap(), index)
}

fn check_index(filter: &Filter, index: &Index, chunks: &[Vec<Event>]) {
    let program = Program::compile(filter, &mut table());
    let matching = |chunk: usize| {
        chunks[chunk]
            .iter()
            .filter(|event| program.matches(&row(event)))
    };
    let expected: Vec<usize> = (0..chunks.len())
        .filter(|chunk| matching(*chunk).next().is_some())
        .collect();
    let pruner = Pruner::new(filter);
    let whole = pruner.run(index);
    let holds = |pruning: &Pruning, what: &str| {
        for chunk in &expected {
            assert!(
                pruning.candidates.contains(chunk),
                "{what} drops chunk {chunk} for {filter}: {:?}",
                chunks[*chunk]
            );
        }
        let ruled_out: usize = pruning.ruled_out.iter().sum();
        assert_eq!(pruning.candidates.len() + ruled_out, chunks.len());
    };
    holds(&whole, "the index");

    for (chunk, events) in chunks.iter().enumerate() {
        let count = matching(chunk).count() as u64;
        if let Some(claimed) = pruner.count(index, chunk) {
            assert_eq!(claimed, count, "chunk {chunk} for {filter}");
        }
        if let Some(records) = pruner.slowest(index, chunk) {
            let slowest = records
                .iter()
                .map(|record| &events[record.raw_offset as usize]);
            let found = slowest.filter(|event| program.matches(&row(event))).count() as u64;
            assert_eq!(
                found, count,
                "slowest of chunk {chunk} for {filter}: {records:?}"
            );
        }
        if let Some(claimed) = pruner.matched(index, chunk) {
            let truth = statistics(matching(chunk));
            assert_eq!(
                claimed.totals(),
                truth.totals(),
                "chunk {chunk} for {filter}"
            );
            if claimed.other.events == 0 && truth.other.events == 0 {
                let by = |statistics: &ChunkStatistics| {
                    statistics.group_by(|group| (group.name.clone(), group.cat.clone()))
                };
                assert_eq!(by(&claimed), by(&truth));
            }
        }
    }

    // The same from the bytes, loading only what the pruner requests.
    let bytes = index.encode().expect("all is loaded");
    let Ok(Opened::Sidecar(mut sidecar)) = Sidecar::open(&bytes, bytes.len() as u64) else {
        panic!("does not open");
    };
    let mut pruning = Pruning::begin(sidecar.index());
    for tier in Tier::ALL {
        for block in pruner.wanted(&sidecar, tier, &pruning) {
            let range = block.range();
            let bytes = &bytes[range.start as usize..range.end as usize];
            sidecar.load(&block, bytes).expect("the bytes of the block");
        }
        assert_eq!(pruner.wanted(&sidecar, tier, &pruning), []);
        pruner.apply(sidecar.index(), tier, &mut pruning);
        holds(&pruning, "the sidecar");
    }
    let whole_again = pruner.run(&Sidecar::read(&bytes).expect("what was written"));
    assert_eq!(whole_again, whole, "{filter}");
}

fn parse(text: &str) -> Filter {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{error}"));
    query
        .bind(BareUnit::MICROS)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Three chunks for the difficult cases of DFTracer's pruner: reads of one process and short
/// writes, only reads of another, and a few slow syncs with quoted numbers.
fn trap_chunks() -> Vec<Vec<Event>> {
    let text = |text: &str| Some(OwnedValue::Str(text.as_bytes().into()));
    let event = |name, cat, ts: i64, dur: i64, pid| -> Event {
        let nanos = |micros: i64| Some(OwnedValue::Int(micros * 1_000));
        [
            text(name),
            text(cat),
            nanos(ts),
            nanos(dur),
            pid,
            None,
            None,
        ]
    };
    let pid = |pid| Some(OwnedValue::Uint(pid));
    vec![
        vec![
            event("read", "POSIX", 100, 99, pid(1_028_567)),
            event("write", "STDIO", 200, 1_000_000, pid(1_028_567)),
        ],
        vec![
            event("read", "POSIX", 1_000, 5, pid(1_028_570)),
            event("read", "POSIX", 1_100, 10, pid(1_028_570)),
        ],
        vec![
            event("fsync", "POSIX", 5_000, 9_000_000, text("1028571")),
            event("read", "POSIX", 6_000, 7, text("1028571")),
        ],
    ]
}

#[test]
fn difficult_cases_of_pruning() {
    let chunks = trap_chunks();
    let index = build(&IndexConfig::new(["pid"]), &chunks);
    let cases: [(&str, &[usize]); 16] = [
        // The complement of "may match" would be empty here.
        ("not (cat == \"POSIX\")", &[0]),
        ("not (name == \"fsync\")", &[0, 1, 2]),
        ("not (name == 'read')", &[0, 2]),
        // 99 is not above 1,000,000, whatever their texts say.
        ("dur > 5000000", &[2]),
        ("dur > 900000", &[0, 2]),
        ("pid == 1028570.0", &[1]),
        ("pid > 1028570.5", &[2]),
        ("pid == 1028571", &[2]),
        ("pid == '1028571'", &[2]),
        // Names, times and durations belong together.
        ("name == 'read' and dur > 1s", &[]),
        ("name == 'read' and ts > 2000", &[2]),
        ("ts >= 1000 and ts < 1050", &[1]),
        // Missing fields.
        ("nosuch == 1", &[0, 1, 2]),
        ("not (nosuch == 1)", &[0, 1, 2]),
        ("name in ['fsync', 'write'] and cat != 'STDIO'", &[2]),
        ("exists(pid) and not exists(dur)", &[]),
    ];
    for (text, candidates) in cases {
        let filter = parse(text);
        let pruning = Pruner::new(&filter).run(&index);
        assert_eq!(pruning.candidates, candidates, "{text}");
        check(&filter, &IndexConfig::new(["pid"]), &chunks);
    }
}
