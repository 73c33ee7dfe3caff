use std::sync::Arc;

use proptest::prelude::*;

use super::Tracer;
use crate::{
    Access, Cause, FileClass, FileTag, Operation, Record, Records, Scope, Settings, current,
};

fn tagged(tracer: &Arc<Tracer>, path: &str, storage: u8) -> FileTag {
    FileTag::new(tracer, path, FileClass::Data, Some([storage; 16]))
}

fn at(file: &FileTag, operation: Operation, offset: u64) {
    let started = file.begin();
    file.end(started, operation, || Access {
        offset: Some(offset),
        asked: 10,
        done: 10,
        ..Access::default()
    });
}

fn drained(tracer: &Tracer) -> (Records, super::Drained) {
    let mut records = Records::default();
    let counts = tracer.drain(&mut records);
    (records, counts)
}

#[test]
fn nothing_is_recorded_while_the_tracer_is_off() {
    let tracer = Arc::new(Tracer::default());
    let file = tagged(&tracer, "a", 1);
    let early = file.begin();
    assert!(!early.is_recorded());
    tracer.start(Settings::default()).unwrap();
    file.end(early, Operation::Read, || unreachable!("it began before"));
    let late = file.begin();
    tracer.stop();
    file.end(late, Operation::Read, Access::default);
    at(&file, Operation::Read, 0);
    assert!(drained(&tracer).0.is_empty());
}

#[test]
fn dropped_records_are_counted_by_operation() {
    let tracer = Arc::new(Tracer::default());
    let settings = Settings {
        thread_records_max: 3,
        ..Settings::default()
    };
    tracer.start(settings).unwrap();
    let file = tagged(&tracer, "a", 1);
    (0..5).for_each(|n| at(&file, Operation::Read, n));
    (0..2).for_each(|n| at(&file, Operation::Write, n));
    let (records, counts) = drained(&tracer);
    assert_eq!(records.len(), 3);
    assert_eq!(counts.recorded, 3);
    assert_eq!(counts.dropped[Operation::Read as usize], 2);
    assert_eq!(counts.dropped[Operation::Write as usize], 2);
    at(&file, Operation::Read, 9);
    let (records, counts) = drained(&tracer);
    assert_eq!((records.len(), counts.recorded), (1, 4));
    assert_eq!(counts.dropped_total(), 4);
}

#[test]
fn threads_have_separate_buffers_and_records_are_ordered_by_time() {
    let tracer = Arc::new(Tracer::default());
    let settings = Settings {
        thread_records_max: 100,
        ..Settings::default()
    };
    tracer.start(settings).unwrap();
    let file = tagged(&tracer, "a", 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|n| at(&file, Operation::Read, n)));
        }
    });
    let (records, counts) = drained(&tracer);
    assert_eq!((records.len(), counts.dropped_total()), (400, 0));
    assert!(
        records
            .iter()
            .is_sorted_by_key(|record| Record::end(&record))
    );
    let mut threads: Vec<_> = records.iter().map(|record| record.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 4);
}

#[test]
fn operations_are_sampled_and_storages_selected() {
    let tracer = Arc::new(Tracer::default());
    let mut settings = Settings {
        storages: vec![[1; 16], [3; 16]],
        own_storage: Some([3; 16]),
        ..Settings::default()
    };
    settings.one_in[Operation::Read as usize] = 4;
    settings.one_in[Operation::Sync as usize] = 0;
    tracer.start(settings).unwrap();
    for storage in 1..=3 {
        let file = tagged(&tracer, "a", storage);
        (0..8).for_each(|n| at(&file, Operation::Read, n));
        at(&file, Operation::Write, 0);
        at(&file, Operation::Sync, 0);
    }
    let of_none = FileTag::new(&tracer, "b", FileClass::Agent, None);
    at(&of_none, Operation::Write, 0);
    let (records, _) = drained(&tracer);
    assert!(records.iter().all(|r| r.file.storage() == Some([1; 16])));
    let count = |op| records.iter().filter(|r| r.operation == op).count();
    assert_eq!((count(Operation::Read), count(Operation::Write)), (2, 1));
    assert_eq!(records.len(), 3);
}

#[test]
fn scopes_nest_and_travel_with_tasks() {
    let tracer = Arc::new(Tracer::default());
    tracer.start(Settings::default()).unwrap();
    let file = tagged(&tracer, "a", 1);
    let outer = Scope::new(&tracer, Cause::Range, Some("r-1".into()), 1);
    let task = outer.around(async {
        at(&file, Operation::Read, 0);
        let _inner = Scope::within(&tracer, Cause::Query).enter();
        at(&file, Operation::Read, 1);
    });
    assert!(current().is_none());
    let mut task = std::pin::pin!(task);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_ready());
    assert!(current().is_none());
    at(&file, Operation::Read, 2);
    let (records, _) = drained(&tracer);
    let recorded: Vec<_> = records
        .iter()
        .map(|record| (record.cause, record.request))
        .collect();
    let expected = [
        (Cause::Range, Some("r-1")),
        (Cause::Query, Some("r-1")),
        (Cause::Unknown, None),
    ];
    assert_eq!(recorded, expected);
}

#[test]
fn settings_that_record_nothing_are_refused() {
    let tracer = Tracer::default();
    for settings in [
        Settings {
            one_in: [0; Operation::COUNT],
            ..Settings::default()
        },
        Settings {
            blocks_one_in: 0,
            ..Settings::default()
        },
        Settings {
            thread_records_max: 0,
            ..Settings::default()
        },
    ] {
        assert!(tracer.start(settings).is_err());
        assert!(!tracer.is_on());
    }
}

proptest! {
    /// Spatial sampling records a block with all its operations, or none of them.
    #[test]
    fn a_block_is_recorded_with_all_its_operations(
        offsets in proptest::collection::vec(0_u64..1 << 24, 1..200),
        one_in in 1_u32..20,
    ) {
        let tracer = Arc::new(Tracer::default());
        let settings = Settings { blocks_one_in: one_in, ..Settings::default() };
        tracer.start(settings).unwrap();
        let file = tagged(&tracer, "a", 1);
        for &offset in &offsets {
            at(&file, Operation::Read, offset);
            at(&file, Operation::Write, offset);
        }
        let (records, _) = drained(&tracer);
        let blocks: std::collections::HashSet<_> =
            records.iter().filter_map(|r| Some(r.access.offset? >> 16)).collect();
        let is_taken = |offset: &&u64| blocks.contains(&(**offset >> 16));
        let expected = 2 * offsets.iter().filter(is_taken).count();
        prop_assert_eq!(records.len(), expected);
        if one_in == 1 {
            prop_assert_eq!(records.len(), 2 * offsets.len());
        }
    }
}

#[test]
fn blocks_are_sampled_at_about_the_requested_rate() {
    let tracer = Arc::new(Tracer::default());
    let settings = Settings {
        blocks_one_in: 8,
        ..Settings::default()
    };
    tracer.start(settings).unwrap();
    let file = tagged(&tracer, "a", 1);
    (0..8000).for_each(|n| at(&file, Operation::Read, n << 16));
    let count = drained(&tracer).0.len();
    assert!((800..1200).contains(&count), "{count}");
}

#[test]
fn an_excluded_storage_is_not_recorded() {
    let tracer = Arc::new(Tracer::default());
    tracer.start(Settings::default()).unwrap();
    let (own, other) = (tagged(&tracer, "a", 1), tagged(&tracer, "b", 2));
    at(&own, Operation::Write, 0);
    tracer.exclude([1; 16]);
    at(&own, Operation::Write, 1);
    at(&other, Operation::Write, 2);
    let (records, counts) = drained(&tracer);
    let offsets: Vec<_> = records.iter().map(|r| r.access.offset).collect();
    assert_eq!(offsets, [Some(0), Some(2)]);
    assert_eq!(counts.recorded, 2);
}
