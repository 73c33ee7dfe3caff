//! `cargo xtask test`: bring what the tests need, build the programs, run every test.

use crate::failure::Outcome;
use crate::install::{self, Origin, Tool};
use crate::process::{cargo, on_path, run, target};

/// Programs that tests start and that cargo does not bring.
const TOOLS: &[Tool] = &[Tool {
    program: "python3",
    from: Origin::Apt(&["python3"]),
    needed_for: "grading the byte-range answers of the server",
}];

/// Runs everything, or with a filter only the tests whose name contains it.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    install::ensure(TOOLS)?;
    // The runner shows nothing of cases that pass; those that skip themselves say it here as well.
    if harness::corpora().is_none() {
        println!("cases on real traces pass without running");
    }
    // The end-to-end tests start the real programs: built once here, not by every test process.
    run(&mut cargo(&[
        "build",
        "--package",
        "server",
        "--package",
        "client",
        "--bins",
    ]))?;
    // Documentation tests come first: the last lines of this job are those of the main run.
    if arguments.is_empty() {
        run(&mut cargo(&["test", "--workspace", "--doc", "--quiet"]))?;
    }
    let mut tests = if on_path("cargo-nextest") {
        cargo(&["nextest", "run", "--workspace"])
    } else {
        cargo(&["test", "--workspace", "--lib", "--bins", "--tests"])
    };
    run(tests
        .args(arguments)
        .env("PROGRAMS_UNDER_TEST", target().join("debug")))
}
