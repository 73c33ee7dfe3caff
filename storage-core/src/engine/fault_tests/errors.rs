//! Operations that fail, panic or are cancelled.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::io::Errno;
use storage_format::{StorageId, storage_file::StorageState};
use tokio::sync::Notify;

use super::{STREAMS, World, config, copy_of};
use crate::{
    Engine, NewStorage,
    io::faulty::{Fault, FaultPlan, Operation, PANIC_MESSAGE},
};

async fn a_disk_error_is_final(operation: Operation, nth: usize) {
    let mut world = World::new().await;
    world.push_some(4).await;
    world
        .plan
        .inject(operation, nth..nth + 1, Fault::Fail(Errno::IO));
    world.push_some(8).await;
    assert_eq!(world.state(), StorageState::Failed, "{operation:?} {nth}");
    assert_eq!(
        world.plan.syncs_after_failed_sync(),
        0,
        "a failed sync is never tried again"
    );
    let refused = world.push("one", 1).await.refused.unwrap();
    assert_eq!(refused.code(), "storage_failed");
    world.check(&world.engine).await;
    let (world, state) = world.restart_without_faults().await;
    assert_eq!(state, StorageState::Failed, "it stays read-only");
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_makes_the_storage_read_only() {
    for nth in 0..6 {
        a_disk_error_is_final(Operation::Write, nth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_makes_the_storage_read_only() {
    for nth in 0..6 {
        a_disk_error_is_final(Operation::Sync, nth).await;
    }
}

/// The writes of one batch fail with different errors, in any order: the worst of them counts.
async fn check_two_failing_writes(first: Errno, second: Errno, code: &str, state: StorageState) {
    let mut world = World::with_tree_of(1000).await;
    world.push_some(2).await;
    for (nth, errno) in [(0, first), (1, second)] {
        let nth = nth..nth + 1;
        world.plan.inject(Operation::Write, nth, Fault::Fail(errno));
    }
    let hits = world.plan.hits();
    // More than one buffer.
    let refused = world.push("one", 120).await.refused.unwrap();
    assert_eq!(world.plan.hits(), hits + 2, "{first} {second}");
    assert_eq!(refused.code(), code, "{first} {second}: {refused}");
    assert_eq!(world.state(), state, "{first} {second}");
    world.plan.heal();
    world.check(&world.engine).await;
    world.check_killed().await;
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_does_not_hide_a_disk_error() {
    for (first, second) in [(Errno::NOSPC, Errno::IO), (Errno::IO, Errno::NOSPC)] {
        check_two_failing_writes(first, second, "write_failed", StorageState::Failed).await;
    }
    let full = Errno::NOSPC;
    check_two_failing_writes(full, full, "disk_full", StorageState::Open).await;
}

/// Two pushes while a task panics: what has no receipt is refused with the message of the panic.
async fn a_panic_fails_the_storage(operation: Operation, nth: usize) {
    let mut world = World::new().await;
    world.push_some(2).await;
    world.plan.inject(operation, nth..nth + 1, Fault::Panic);
    let mut refused = 0;
    for _ in 0..4 {
        let pending = [world.submit("one", 2).await, world.submit("two", 1).await];
        for (pending, stream) in pending.into_iter().zip(STREAMS) {
            let error = match pending {
                Ok(pending) => {
                    let outcome = pending.await;
                    *world.acknowledged.entry(stream).or_default() += outcome.receipts.len() as u64;
                    outcome.refused
                }
                Err(error) => Some(error),
            };
            let Some(error) = error else { continue };
            let codes: &[_] = match refused {
                0 => &["write_failed"],
                _ => &["write_failed", "storage_failed"],
            };
            refused += 1;
            assert!(codes.contains(&error.code()), "{operation:?}: {error}");
            assert!(error.to_string().contains(PANIC_MESSAGE), "{error}");
            // At once: the reply is not earlier than the state.
            assert_eq!(world.state(), StorageState::Failed, "{operation:?}");
        }
    }
    assert!(refused > 0, "{operation:?} panicked");
    let status = world.engine.storages().status(world.storage).unwrap();
    assert!(status.failure.unwrap().contains(PANIC_MESSAGE));
    assert_eq!((status.queued_packets, status.queued_bytes), (0, 0));
    let failures = world.engine.failures(1);
    assert_eq!(failures.storage_count, 1);
    assert_eq!(failures.storages[0].0, world.storage);
    assert_eq!(world.engine.counters().failed_storages.get(), 1);
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap_err().code(), "storage_failed");
    world.check(&world.engine).await;
    let is_dead = operation == Operation::Dispatch;
    assert_eq!(failures.io_thread.is_some(), is_dead, "{failures:?}");
    world.plan.heal();
    assert_eq!(world.engine.shutdown().await.is_err(), is_dead);
    let engine = Engine::open(config(world.folder.path())).await.unwrap();
    world.check(&engine).await;
    // A dead I/O thread cannot write the storage file; the disk is as good as before.
    let after = engine.storages().get(world.storage).unwrap().state;
    let expected = if is_dead {
        StorageState::Open
    } else {
        StorageState::Failed
    };
    assert_eq!(after, expected, "{operation:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_writer_fails_the_storage() {
    for nth in 0..3 {
        a_panic_fails_the_storage(Operation::Submit, nth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_task_of_a_data_file_fails_the_storage() {
    for operation in [Operation::Write, Operation::Sync] {
        a_panic_fails_the_storage(operation, 0).await;
        a_panic_fails_the_storage(operation, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_io_thread_fails_the_storage() {
    for nth in 0..3 {
        a_panic_fails_the_storage(Operation::Dispatch, nth).await;
    }
}

/// What a storage says at the moment in which a reply is sent, on the thread that sends it.
struct SeenByReply {
    engine: Engine,
    storage: StorageId,
    seen: Mutex<Option<StorageState>>,
    replied: Notify,
}

impl Wake for SeenByReply {
    fn wake(self: Arc<Self>) {
        let info = self.engine.storages().get(self.storage).unwrap();
        *self.seen.lock() = Some(info.state);
        self.replied.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_is_earlier_than_the_state() {
    for (operation, fault) in [
        (Operation::Dispatch, Fault::Panic),
        (Operation::Write, Fault::Panic),
        (Operation::Sync, Fault::Fail(Errno::IO)),
    ] {
        let mut world = World::new().await;
        world.push_some(2).await;
        world.plan.halt_after(0);
        let inject = || world.plan.inject(operation, 0..1, fault);
        let is_of_first = operation != Operation::Dispatch;
        if is_of_first {
            inject();
        }
        let mut pending = Box::pin(world.submit("one", 1).await.unwrap());
        let reply = Arc::new(SeenByReply {
            engine: world.engine.clone(),
            storage: world.storage,
            seen: Mutex::default(),
            replied: Notify::new(),
        });
        let waker = Waker::from(Arc::clone(&reply));
        let mut context = Context::from_waker(&waker);
        assert!(pending.as_mut().poll(&mut context).is_pending());
        world.plan.halted().await;
        if !is_of_first {
            inject();
            drop(world.submit("two", 1).await.unwrap());
            // Otherwise the write of the first packet may go on before the thread panics, and its
            // receipt is as good as any.
            while world.plan.hits() == 0 {
                tokio::task::yield_now().await;
            }
        }
        world.plan.resume();
        reply.replied.notified().await;
        let seen = reply.seen.lock().take();
        assert_eq!(seen, Some(StorageState::Failed), "{operation:?}");
        let refused = pending.await.refused.unwrap();
        assert_eq!(refused.code(), "write_failed", "{operation:?}");
        world.plan.heal();
        let _ = world.engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_writer_fails_the_storage() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let pending = world.submit("one", 1).await.unwrap();
    world.engine.abort_tasks().await;
    if let Some(error) = pending.await.refused {
        assert_eq!(error.code(), "write_failed", "{error}");
    }
    assert_eq!(world.state(), StorageState::Failed);
    let refused = world.push("one", 1).await.refused.unwrap();
    assert_eq!(refused.code(), "storage_failed", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_then_resumes_without_a_gap() {
    for operation in [Operation::Write, Operation::Open] {
        for nth in 0..5 {
            let mut world = World::new().await;
            if operation == Operation::Write {
                world.push_some(3).await;
            }
            world
                .plan
                .inject(operation, nth..nth + 3, Fault::Fail(Errno::NOSPC));
            let mut refusals = 0;
            for round in 0..12 {
                for stream in STREAMS {
                    let outcome = world.push(stream, 1 + round % 3).await;
                    if let Some(error) = outcome.refused {
                        refusals += 1;
                        let is_expected =
                            ["disk_full", "earlier_packet_refused"].contains(&error.code());
                        assert!(is_expected, "{error}");
                    }
                }
            }
            assert!(
                refusals > 0 || operation == Operation::Open,
                "the fault was met"
            );
            world.plan.heal();
            assert!(
                world.push("one", 3).await.refused.is_none(),
                "it goes on by itself"
            );
            assert_eq!(world.state(), StorageState::Open);
            world.check(&world.engine).await;
            world
                .engine
                .storages()
                .finalize(world.storage)
                .await
                .unwrap();
            world.check(&world.engine).await;
            let (world, state) = world.restart_without_faults().await;
            assert_eq!(state, StorageState::Finalized);
            world.engine.shutdown().await.unwrap();
        }
    }
}

/// A lack of file descriptors or memory refuses pushes for as long as it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_transient_error_refuses_and_does_not_fail_the_storage() {
    let cases = [
        (Operation::Open, Errno::MFILE),
        (Operation::Open, Errno::NFILE),
        (Operation::SyncFolder, Errno::MFILE),
        (Operation::Write, Errno::NOMEM),
        (Operation::Write, Errno::AGAIN),
    ];
    for (operation, errno) in cases {
        let mut world = World::new().await;
        let fault = Fault::Fail(errno);
        world.plan.inject(operation, 0..usize::MAX, fault);
        for stream in STREAMS {
            let refused = world.push(stream, 2).await.refused.unwrap();
            assert_eq!(refused.code(), "resources_exhausted", "{refused}");
        }
        assert_eq!(world.state(), StorageState::Open, "{operation:?} {errno}");
        world.plan.heal();
        world.push_some(3).await;
        world.plan.inject(operation, 0..usize::MAX, fault);
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap_err().code(), "resources_exhausted");
        assert_ne!(world.state(), StorageState::Failed, "{operation:?} {errno}");
        world.plan.heal();
        let finalized = world.engine.storages().finalize(world.storage).await;
        assert_eq!(finalized.unwrap().state, StorageState::Finalized);
        world.check(&world.engine).await;
        let (world, state) = world.restart_without_faults().await;
        assert_eq!(state, StorageState::Finalized);
        world.engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_runs_out_of_memory_is_a_failed_sync() {
    let mut world = World::new().await;
    world.push_some(2).await;
    let fault = Fault::Fail(Errno::NOMEM);
    world.plan.inject(Operation::Sync, 0..1, fault);
    world.push_some(2).await;
    assert_eq!(world.state(), StorageState::Failed);
    assert_eq!(world.plan.syncs_after_failed_sync(), 0);
    world.engine.shutdown().await.unwrap();
}

/// A data file that another program truncated is damage, and is not blamed on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_truncated_file_is_its_length() {
    let mut world = World::new().await;
    world.push_some(4).await;
    let (mut world, _) = world.restart_without_faults().await;
    let folder = world.folder.path().join("storages");
    let folder = folder.join(world.storage.to_string());
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "itdata") {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.unwrap().set_len(5000).unwrap();
        }
    }
    let mut damage = Vec::new();
    for number in 0..world.acknowledged.values().sum() {
        let read = world.engine.reading().read_packet(world.storage, number);
        damage.extend(read.await.err());
    }
    assert!(!damage.is_empty());
    assert!(
        damage.iter().all(|error| error.code() == "damaged"),
        "{damage:?}"
    );
    let verified = world.engine.reading().verify(world.storage, Arc::default());
    let verified = verified.await.map(|report| format!("{:?}", report.damage));
    let text = format!("{damage:?} {verified:?}");
    assert!(text.contains("byte 5000"), "{text}");
    assert!(!text.contains("whole buffer"), "{text}");
    // New packets go to a new file.
    let next = world.acknowledged["one"];
    assert!(world.push("one", next).await.refused.is_none());
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn short_writes_are_completed() {
    let mut world = World::new().await;
    for short in [0..4, 7..8, 11..14] {
        world
            .plan
            .inject(Operation::Write, short, Fault::Short(4096 + 512));
        world.push_some(6).await;
    }
    let outcome = world.push("one", 40).await;
    assert!(outcome.refused.is_none(), "{outcome:?}");
    world.check(&world.engine).await;
    world
        .engine
        .storages()
        .finalize(world.storage)
        .await
        .unwrap();
    let (world, state) = world.restart_without_faults().await;
    assert_eq!(state, StorageState::Finalized);
    world.engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalization_without_space_can_be_done_again() {
    for operation in [Operation::Rename, Operation::Open, Operation::SetLength] {
        for nth in 0..4 {
            let mut world = World::new().await;
            world.push_some(5).await;
            world
                .plan
                .inject(operation, nth..nth + 1, Fault::Fail(Errno::NOSPC));
            let first = world.engine.storages().finalize(world.storage).await;
            world.plan.heal();
            if let Err(error) = first {
                assert_eq!(error.code(), "disk_full", "{operation:?} {nth}: {error}");
                assert_eq!(world.state(), StorageState::Open, "{operation:?} {nth}");
                world.push_some(2).await;
                world
                    .engine
                    .storages()
                    .finalize(world.storage)
                    .await
                    .unwrap();
            }
            world.check(&world.engine).await;
            let (world, state) = world.restart_without_faults().await;
            assert_eq!(state, StorageState::Finalized);
            world.engine.shutdown().await.unwrap();
        }
    }
}

/// The reason of a storage whose data file another program truncated while the server ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_file_that_another_program_truncated_is_not_extended() {
    for is_closed in [true, false] {
        let mut world = World::with(|config| {
            config.channel_idle = Duration::from_millis(if is_closed { 20 } else { 60_000 });
        })
        .await;
        world.push_some(4).await;
        if is_closed {
            tokio::time::sleep(Duration::from_millis(200)).await;
        } else {
            world = world.restart_without_faults().await.0;
        }
        let path = world
            .folder_of(&world.engine)
            .join("0000000000000000.itdata");
        let file = std::fs::OpenOptions::new().write(true).open(&path);
        let file = file.unwrap();
        // After the start of the server, which found the file to be longer than its batches.
        file.set_len(5000).unwrap();
        let outcome = world.push("one", 1).await;
        if let Some(error) = outcome.refused {
            assert!(error.to_string().contains("5000 bytes"), "{error}");
            assert_eq!(world.state(), StorageState::Failed);
        } else {
            assert!(!is_closed, "the next write opens the file");
        }
        assert_eq!(file.metadata().unwrap().len(), 5000, "{is_closed}");
        world.engine.shutdown().await.unwrap();
    }
}

/// What the disk refuses while the server starts does not stop it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_on_a_full_disk() {
    let mut world = World::new().await;
    world.push_some(4).await;
    // The storage remains FINALIZING: neither that nor another state can be published after the
    // second copy of the storage file and the storage file.
    let full = Fault::Fail(Errno::NOSPC);
    world.plan.inject(Operation::Rename, 2..usize::MAX, full);
    let finalized = world.engine.storages().finalize(world.storage).await;
    assert_eq!(finalized.unwrap_err().code(), "disk_full");
    assert_eq!(world.state(), StorageState::Finalizing);
    let copy = copy_of(world.folder.path());
    let stray = copy.path().join("storages/.deleted-stray");
    std::fs::write(stray, b"not a folder").unwrap();
    let plan = Arc::<FaultPlan>::default();
    plan.inject(Operation::Write, 0..usize::MAX, full);
    let mut config = config(copy.path());
    config.faults = Some(Arc::clone(&plan));
    let engine = Engine::open(config).await.unwrap();
    world.check(&engine).await;
    plan.heal();
    // The finalization continues.
    let state = world.check_recovered(&engine).await;
    assert_eq!(state, StorageState::Finalized);
    engine.shutdown().await.unwrap();
    world.engine.shutdown().await.unwrap();
}

/// A log that is closed between two appends still refuses the second one after the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_closed_refuses_what_follows_a_refused_packet() {
    let mut world = World::with(|config| config.open_channel_count_max = 1).await;
    let new = NewStorage {
        name: "other".into(),
        ..NewStorage::default()
    };
    let other = world.engine.storages().create(new).await.unwrap().0.id;
    world.engine.storages().open(other).await.unwrap();
    for round in 0..40 {
        let full = Fault::Fail(Errno::NOSPC);
        world.plan.inject(Operation::Write, 0..1, full);
        let mut pending = Vec::new();
        for at in 0..6 {
            let first = world.acknowledged.get("one").copied().unwrap_or(0) + at;
            let pushed = world.push_to(&world.engine, "one", first..first + 1).await;
            pending.push(pushed.unwrap());
            let at = round * 6 + at;
            let elsewhere = world.push_into(&world.engine, other, "two", at..at + 1);
            drop(elsewhere.await);
        }
        let mut is_refused = false;
        for outcome in pending {
            let outcome = outcome.await;
            assert!(!is_refused || outcome.receipts.is_empty(), "round {round}");
            is_refused |= outcome.refused.is_some();
            *world.acknowledged.entry("one").or_default() += outcome.receipts.len() as u64;
        }
        world.plan.heal();
    }
    world.check(&world.engine).await;
    world.check_killed().await;
    world.engine.shutdown().await.unwrap();
}
