//! Nodes share a storage over a store with faults, and die; no acknowledged packet is lost.
//!
//! `FIRST_SEED` and `SEEDS` choose the seeds. A seed that fails prints itself: run it alone with
//! `FIRST_SEED=n SEEDS=1`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what was measured")]
#![expect(dead_code, reason = "not every test needs all of the support")]

#[path = "../support/mod.rs"]
mod support;

mod kills;
mod node;
mod run;

use run::{Sabotage, Tally, run_seed};

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn no_acknowledged_packet_is_lost() {
    let started = std::time::Instant::now();
    let (first, seeds) = (setting("FIRST_SEED", 0), setting("SEEDS", 1000));
    let threads = std::thread::available_parallelism().unwrap().get();
    let run_every = |offset: usize| {
        let mut sum = Tally::default();
        for seed in (first + offset as u64..first + seeds).step_by(threads) {
            match run_seed(seed, None) {
                Ok(tally) => sum.add(&tally),
                Err(problem) => panic!("seed {seed}: {problem}"),
            }
        }
        sum
    };
    let mut sum = Tally::default();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|offset| scope.spawn(move || run_every(offset)))
            .collect();
        for run in runs {
            sum.add(&run.join().expect("the thread has said why"));
        }
    });
    println!(
        "{seeds} seeds in {:.1} s: {sum:?}",
        started.elapsed().as_secs_f64()
    );
    if seeds >= 100 {
        // A simulation in which nothing happens finds nothing.
        let Tally {
            acknowledged,
            takeovers,
            superseded,
            in_doubt,
            settled,
            failures: _,
            found_closed,
            seals: _,
            collected,
            deaths,
            impossible: _,
        } = sum;
        assert!(acknowledged > 5 * seeds, "{acknowledged}");
        for count in [
            takeovers,
            superseded,
            in_doubt,
            found_closed,
            collected,
            deaths,
        ] {
            assert!(count > seeds / 20, "{sum:?}");
        }
        assert!(settled > seeds / 50, "{sum:?}");
    }
}

/// Some seed notices, and says so in these words.
#[track_caller]
fn is_caught(sabotage: Sabotage, words: &str) {
    let caught = (0..3000).find_map(|seed| {
        let problem = run_seed(seed, Some(sabotage)).err()?;
        problem.contains(words).then_some((seed, problem))
    });
    let (seed, problem) = caught.unwrap_or_else(|| panic!("{sabotage:?} is not noticed"));
    println!("{sabotage:?}: seed {seed}: {problem}");
}

#[test]
fn lost_packets_are_noticed() {
    for sabotage in [
        Sabotage::OwnSequence,
        Sabotage::ExistingCounts,
        Sabotage::SealUnseen,
        Sabotage::OwnsCollected,
        Sabotage::CollectsBeforeSeal,
        Sabotage::DoubtAcknowledged,
    ] {
        is_caught(sabotage, "were acknowledged and are not in the seal");
    }
}

#[test]
fn repeated_packets_and_second_seals_are_noticed() {
    is_caught(Sabotage::RepeatsAppended, "twice");
    is_caught(Sabotage::SealOverwrites, "changed");
}
