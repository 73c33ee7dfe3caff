//! The crash run: kills the server at random moments, restarts it, and checks that it fulfilled its
//! promises.
//!
//! A storage lives through many kills: during ingest and index flushes, which a small limit of the
//! tree makes frequent, and during recovery, finalization and deletion. After each kill the
//! [`model`] compares the server's state with what it acknowledged. Killing a process cannot lose
//! what the kernel has accepted; `power` tests losses of the disk.

mod model;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::payload::Random;
use crate::server::{Server, Settings};
use model::StorageRun;

/// The plan of a crash run.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    /// The data folder; empty or new.
    pub folder: PathBuf,
    /// The server's settings.
    pub settings: Settings,
    /// The number of kills.
    pub kills: u32,
    /// The same seed gives the same plan. Moments still differ slightly, because threads do.
    pub seed: u64,
    /// The longest time between the start of the work and the kill.
    pub delay_max: Duration,
}

/// The configuration of a crash run: limits so small that index parts are written all the time.
pub fn crash_settings() -> Settings {
    Settings::with_config(
        "[storage]\nlive_index_packets_max = 64\nuncovered_bytes_max = 4194304\n\
         preallocation_bytes_max = 1048576\nopen_files_max = 3\n\
         data_file_bytes_max = 262144\n",
    )
}

/// The result of a crash run.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Kills while packets were pushed.
    pub kills_ingest: u32,
    /// Kills while a storage was finalized.
    pub kills_finalize: u32,
    /// Kills while the server started.
    pub kills_recovery: u32,
    /// Kills while a storage was deleted.
    pub kills_delete: u32,
    /// Packets acknowledged in all storages; each was read back at least once.
    pub acknowledged: u64,
    /// Packets that were stored although the kill came before their acknowledgement.
    pub kept_without_ack: u64,
    /// Storages that went through all states.
    pub storages: u32,
    /// Full data files that were arranged while their storage was open.
    pub files_arranged: usize,
    /// The slowest start.
    pub ready_after_max: Duration,
}

impl CrashReport {
    /// The total number of kills.
    pub fn kills(&self) -> u32 {
        self.kills_ingest + self.kills_finalize + self.kills_recovery + self.kills_delete
    }
}

/// The phase that the next kill interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Ingest,
    Recovery,
    Finalize,
    Delete,
}

/// Runs the plan and calls `progress` after each kill.
///
/// # Panics
/// If an acknowledged packet is lost, duplicated or changed, or the server does not start without
/// help.
pub fn crash(plan: &CrashPlan, mut progress: impl FnMut(&CrashReport)) -> CrashReport {
    let mut random = Random::new(plan.seed);
    let mut report = CrashReport::default();
    let mut server = Server::start(&plan.folder, &plan.settings);
    let mut run = StorageRun::begin(&mut server.api(), 0);
    let delay_max = u64::try_from(plan.delay_max.as_micros()).expect("a delay of some seconds");
    while report.kills() < plan.kills {
        let delay = Duration::from_micros(random.below(delay_max + 1));
        match moment(&mut random) {
            Moment::Ingest => {
                ingest_and_kill(&mut server, &mut run, delay);
                report.kills_ingest += 1;
            }
            Moment::Recovery => {
                ingest_and_kill(&mut server, &mut run, delay);
                report.kills_ingest += 1;
                // A start takes some milliseconds: a longer delay would kill the server after it.
                server.restart_and_kill(delay / 16);
                report.kills_recovery += 1;
            }
            Moment::Finalize => {
                finalize_and_kill(&mut server, &mut run, delay);
                report.kills_finalize += 1;
            }
            Moment::Delete => {
                if !run.is_finalized() {
                    run.finalize(&mut server.api());
                }
                delete_and_kill(&mut server, &run, delay / 16);
                report.kills_delete += 1;
            }
        }
        server.restart();
        report.ready_after_max = report.ready_after_max.max(server.ready_after());
        run.judge(&mut server.api());
        // Finalizing a large storage takes longer than the time until the next kill.
        let is_enough = random.below(if run.is_finalized() { 2 } else { 12 }) == 0;
        if is_enough || run.is_deleted() {
            finish(&mut server, &mut run, &mut report);
        }
        progress(&report);
    }
    if !run.is_deleted() {
        finish(&mut server, &mut run, &mut report);
    }
    report.files_arranged = server.files_arranged();
    report
}

fn moment(random: &mut Random) -> Moment {
    match random.below(10) {
        0..=4 => Moment::Ingest,
        5..=6 => Moment::Recovery,
        7..=8 => Moment::Finalize,
        _ => Moment::Delete,
    }
}

/// The last, complete check of a storage, after which a new one is created.
fn finish(server: &mut Server, run: &mut StorageRun, report: &mut CrashReport) {
    let mut api = server.api();
    run.check_everything(&mut api);
    report.acknowledged += run.acknowledged();
    report.kept_without_ack += run.kept_without_ack();
    report.storages += 1;
    *run = StorageRun::begin(&mut api, u64::from(report.storages));
}

fn ingest_and_kill(server: &mut Server, run: &mut StorageRun, delay: Duration) {
    let stop = AtomicBool::new(false);
    let address = server.address();
    thread::scope(|scope| {
        for stream in run.streams_mut() {
            scope.spawn(|| stream.push_until(address, &stop));
        }
        thread::sleep(delay);
        server.kill();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Packets still arrive when finalization starts; from some moment on they are refused.
fn finalize_and_kill(server: &mut Server, run: &mut StorageRun, delay: Duration) {
    let stop = AtomicBool::new(false);
    let address = server.address();
    let storage = run.storage().to_owned();
    let finalized = AtomicBool::new(run.is_finalized());
    thread::scope(|scope| {
        for stream in run.streams_mut() {
            scope.spawn(|| stream.push_until(address, &stop));
        }
        scope.spawn(|| {
            if model::finalize(address, &storage) {
                finalized.store(true, Ordering::Relaxed);
            }
        });
        thread::sleep(delay);
        server.kill();
        stop.store(true, Ordering::Relaxed);
    });
    if finalized.into_inner() {
        run.finalization_was_acknowledged();
    }
}

fn delete_and_kill(server: &mut Server, run: &StorageRun, delay: Duration) {
    let address = server.address();
    thread::scope(|scope| {
        scope.spawn(|| model::delete(address, run.storage()));
        thread::sleep(delay);
        server.kill();
    });
}
