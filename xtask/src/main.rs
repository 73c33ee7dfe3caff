//! Jobs of the repository: `cargo xtask check`, `test`, `tidy`, `bench` and others.
//!
//! Every job is plain Rust over child processes, so that it runs the same on a developer's machine
//! and in CI. A job prints what it does and exits with status 1 when it finds a fault.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program"
)]

mod bench;
mod check;
mod crash;
mod dependencies;
mod dist;
mod failing_disk;
mod failure;
mod fault;
mod fuzz;
mod install;
mod model;
mod options;
mod power;
mod process;
mod suite;
mod tidy;
mod wheel;

use std::process::ExitCode;

use failure::{Failure, Outcome};

const USAGE: &str = "\
cargo xtask JOB

  check                     everything that CI runs: formatting, tidy, dependencies, clippy, tests,
                            and faults in the short form
  test [FILTER]             install what the tests need, then run every test
  tidy [--bless]            check the rules of the repository; --bless records new golden files
  dependencies              check licences, banned crates and sources of all dependencies
  bench [NAME] [OPTIONS]    run a benchmark, or list them
  crash [--kills N] [--seed S] [--delay-ms D]
                            kill the server at random moments and check for lost packets (500)
  fault [--short] [--report] [--sabotage] [--only PREFIX] [--threads N]
                            kill the server at every named point of its code, hang up there, and
                            compare what a restart shows with what was promised
  model [--seeds N] [--seed S] [--operations N]
                            run random operations on storages and compare with a model (20 of 1000)
  power [--states N] [--seed S] [--seconds T]
                            check disks as a power cut may leave them (200)
  fuzz [NAME [SECONDS]]     run a fuzz target (60 s), or list them
  dist [--profile NAME | --programs FOLDER] [--check]
                            make static programs, or take those in FOLDER, and packages and an image
                            of them in target/packages; --check tries these on a copy of this
                            machine (needs root)
  wheel [--profile NAME]    build the Python client and a wheel with the program tracehold (dist), and
                            try both in an empty environment
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Outcome {
    let (job, rest) = arguments
        .split_first()
        .ok_or_else(|| Failure::Usage(USAGE.to_owned()))?;
    match job.as_str() {
        "check" => check::run_job(rest),
        "dependencies" => dependencies::run_job(rest),
        "test" => suite::run_job(rest),
        "tidy" => tidy::run_job(rest),
        "bench" => bench::run_job(rest),
        "crash" => crash::run_job(rest),
        "model" => model::run_job(rest),
        "power" => power::run_job(rest),
        "fault" => fault::run_job(rest),
        "fuzz" => fuzz::run_job(rest),
        "dist" => dist::run_job(rest),
        "wheel" => wheel::run_job(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::Usage(format!("unknown job {job:?}\n{USAGE}"))),
    }
}
