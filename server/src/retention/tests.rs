//! What is deleted, and what is not.

use storage_format::paths::FileRole;
use storage_format::storage_file::{FileEntry, Totals};

use std::cell::{Cell, RefCell};

use storage_core::{Engine, NewStorage, StoragePatch};

use super::*;
use crate::jobs::JobKind;
use crate::routes::tests::app;

const NOW: i64 = CLOCKS_SET_NS + 1_000 * NS;

fn storage(number: u8, age_seconds: i64, bytes: u64, labels: &[&str]) -> StorageInfo {
    let labels = labels
        .iter()
        .map(|name| ((*name).to_owned(), "x".to_owned()));
    StorageInfo {
        id: StorageId::from_bytes([number; 16]),
        name: String::new(),
        description: String::new(),
        state: StorageState::Finalized,
        labels: labels.collect(),
        created: 0,
        opened: None,
        finalized: Some(NOW - age_seconds * NS),
        server_version: String::new(),
        idempotency_key: None,
        failure: None,
        totals: Totals::default(),
        files: vec![FileEntry {
            name: String::new(),
            role: FileRole::Data,
            length: bytes,
            checksum: 0,
        }],
    }
}

#[test]
fn the_oldest_are_deleted_until_the_bounds_hold() {
    let storages = || {
        vec![
            storage(1, 10, 100, &[]),
            storage(2, 30, 100, &["legal_hold"]),
            storage(3, 20, 100, &[]),
            storage(4, 40, 100, &[]),
            // Its machine did not know the time.
            storage(5, 2_000, 100, &[]),
        ]
    };
    let excepted = HashSet::from([StorageId::from_bytes([4; 16])]);
    for (age, bytes, expected) in [
        (None, None, vec![]),
        (Some(15), None, vec![(3, Reason::Age)]),
        (None, Some(299), vec![(3, Reason::Bytes)]),
        (None, Some(300), vec![]),
        (
            Some(15),
            Some(199),
            vec![(3, Reason::Age), (1, Reason::Bytes)],
        ),
        (
            None,
            Some(99),
            vec![(3, Reason::Bytes), (1, Reason::Bytes), (5, Reason::Bytes)],
        ),
    ] {
        let policy = Policy {
            age_seconds_max: age,
            bytes_max: bytes,
            label: None,
        };
        let plan = decide(&policy, storages(), &excepted, NOW);
        let found: Vec<_> = plan
            .deletions
            .iter()
            .map(|deletion| (deletion.storage.id.as_bytes()[0], deletion.reason))
            .collect();
        assert_eq!(found, expected, "{policy:?}");
        assert_eq!(plan.held, 1);
    }
}

#[test]
fn after_a_jump_of_the_clock_only_bytes_count() {
    let policy = Policy {
        age_seconds_max: Some(15),
        bytes_max: Some(1_000),
        label: Some("a".to_owned()),
    };
    assert_eq!(policy.with_ages(true), policy);
    let left = policy.with_ages(false);
    assert_eq!((left.age_seconds_max, left.bytes_max), (None, Some(1_000)));
    assert_eq!(left.label, policy.label);
}

/// A finalized storage, and when it was finalized.
async fn finalized(engine: &Engine, name: &str) -> (StorageId, i64) {
    let new = NewStorage {
        name: name.to_owned(),
        is_open: true,
        ..NewStorage::default()
    };
    let id = engine.storages().create(new).await.unwrap().0.id;
    let storage = engine.storages().finalize(id).await.unwrap();
    // The next one is later.
    tokio::time::sleep(Duration::from_millis(2)).await;
    (id, storage.finalized.unwrap())
}

fn names(engine: &Engine) -> Vec<String> {
    let left = engine.storages().list(&StorageFilter::default());
    left.into_iter().map(|storage| storage.name).collect()
}

#[tokio::test]
async fn no_age_counts_after_the_clock_jumps_during_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    let (_, first) = finalized(&engine, "first").await;
    finalized(&engine, "second").await;
    finalized(&engine, "third").await;
    let policy = Policy {
        age_seconds_max: Some(60),
        ..Policy::default()
    };
    let start = since_boot();
    let is_deleted = || !names(&engine).contains(&"first".to_owned());
    // Only the first one is too old, until the clock is set 80 years forward.
    let mut ages = Ages::new(|| {
        let jump = if is_deleted() {
            80 * 31_536_000 * NS
        } else {
            0
        };
        (first + 60 * NS + 1 + jump, start)
    });
    let round = delete_planned(&app, &policy, &mut ages, PLAN_LASTS).await;
    assert_eq!(round.deleted, 1);
    assert_eq!(names(&engine), ["second", "third"]);
    assert!(!app.ages_trusted.load(Ordering::Relaxed));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_round_has_one_plan_and_leaves_what_was_held_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    for number in 0..20 {
        finalized(&engine, &number.to_string()).await;
    }
    let (held, last) = finalized(&engine, "held").await;
    let policy = Policy {
        age_seconds_max: Some(60),
        ..Policy::default()
    };
    let later = last + 61 * NS;
    let start = since_boot();
    let planned = plan(&app, &policy, later).await.deletions;
    let of_held = planned.into_iter().find(|each| each.storage.id == held);
    let of_held = of_held.unwrap().storage;
    assert!(is_unchanged(&app, &of_held).await);
    let labels = [("legal_hold".to_owned(), "case 7".to_owned())];
    let patch = StoragePatch {
        labels: Some(labels.into()),
        ..StoragePatch::default()
    };
    engine.storages().update(held, patch).await.unwrap();
    assert!(!is_unchanged(&app, &of_held).await);

    let reads = Cell::new(0);
    let mut ages = Ages::new(|| {
        reads.set(reads.get() + 1);
        (later, start)
    });
    let round = delete_planned(&app, &policy, &mut ages, PLAN_LASTS).await;
    // The second plan finds nothing.
    let wanted = Round {
        plans: 2,
        deleted: 20,
    };
    assert_eq!(round, wanted);
    assert_eq!(names(&engine), ["held"]);
    assert!(reads.get() > 20);
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_server_on_which_plans_take_longer_than_they_last_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    finalized(&engine, "first").await;
    let (_, last) = finalized(&engine, "second").await;
    let policy = Policy {
        age_seconds_max: Some(60),
        ..Policy::default()
    };
    let start = since_boot();
    let mut ages = Ages::new(|| (last + 61 * NS, start));
    let round = delete_planned(&app, &policy, &mut ages, Duration::ZERO);
    let round = tokio::time::timeout(Duration::from_secs(60), round).await;
    let wanted = Round {
        plans: 3,
        deleted: 2,
    };
    assert_eq!(round.unwrap(), wanted);
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_job_began_to_read_during_a_deletion_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    finalized(&engine, "first").await;
    finalized(&engine, "second").await;
    let (read, last) = finalized(&engine, "third").await;
    let policy = Policy {
        age_seconds_max: Some(60),
        ..Policy::default()
    };
    let start = since_boot();
    // The clock is read between two deletions. Exports and copies are jobs.
    let job = RefCell::new(None);
    let mut ages = Ages::new(|| {
        let has_begun = !names(&engine).contains(&"first".to_owned());
        if has_begun && job.borrow().is_none() {
            let started = app.jobs.start(JobKind::Export, Some(read));
            *job.borrow_mut() = Some(started.unwrap());
        }
        (last + 61 * NS, start)
    });
    let round = delete_planned(&app, &policy, &mut ages, PLAN_LASTS).await;
    assert_eq!(round.deleted, 2);
    assert_eq!(names(&engine), ["third"]);
    drop(job.take());
    engine.shutdown().await.unwrap();
}
