//! `cargo xtask crash`: the long form of the crash tests.

use std::time::{Duration, Instant};

use harness::{CrashPlan, Settings, crash};

use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

/// The number of kills that a release must survive.
const KILLS_DEFAULT: u32 = 500;

/// The longest work between two kills, in milliseconds.
const DELAY_MS_DEFAULT: u64 = 500;

/// Builds the server, kills it many times, and prints the result.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let kills = options.get("kills", KILLS_DEFAULT)?;
    let seed = options.get("seed", 1)?;
    let delay_max = Duration::from_millis(options.get("delay-ms", DELAY_MS_DEFAULT)?);
    let folder = fresh_folder("crash")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..harness::crash_settings()
    };
    let plan = CrashPlan {
        folder,
        settings,
        kills,
        seed,
        delay_max,
    };
    println!("killing the server {kills} times, seed {seed}");
    let begin = Instant::now();
    let mut printed = Instant::now();
    let report = crash(&plan, |report| {
        if printed.elapsed() > Duration::from_secs(10) {
            printed = Instant::now();
            println!(
                "{} kills, {} packets acknowledged",
                report.kills(),
                report.acknowledged
            );
        }
    });
    println!(
        "{} kills ({} during ingest, {} finalization, {} recovery, {} deletion) in {:.0} s",
        report.kills(),
        report.kills_ingest,
        report.kills_finalize,
        report.kills_recovery,
        report.kills_delete,
        begin.elapsed().as_secs_f64(),
    );
    println!(
        "{} storages, {} packets acknowledged and read back, {} stored without acknowledgement",
        report.storages, report.acknowledged, report.kept_without_ack,
    );
    println!("{} full data files arranged", report.files_arranged);
    if report.files_arranged == 0 {
        return Err(Failure::Run("no full data file was arranged".into()));
    }
    println!(
        "slowest start {:.3} s; no packet lost or duplicated",
        report.ready_after_max.as_secs_f64()
    );
    Ok(())
}
