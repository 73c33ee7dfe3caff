//! `cargo xtask check`: all that a change must pass before it lands. CI runs the same.

use crate::failure::{Failure, Outcome};
use crate::process::{ALL_STORES, cargo, run};
use crate::{dependencies, fault, suite, tidy};

/// The cheapest check runs first.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    if let Some(argument) = arguments.first() {
        let text = format!("check accepts no arguments, not {argument:?}");
        return Err(Failure::Usage(text));
    }
    run(&mut cargo(&["fmt", "--all", "--", "--check"]))?;
    tidy::run_job(&[])?;
    dependencies::run_job(&[])?;
    let clippy = ["clippy", "--workspace", "--all-targets"];
    let deny = ["--", "--deny", "warnings"];
    // As programs are built by default, and then as they are tested: only the crates that depend on
    // the difference are checked twice.
    run(cargo(&clippy).args(deny))?;
    run(cargo(&clippy).args(ALL_STORES).args(deny))?;
    // The tests reuse what this compiles, but for the crates with fault points.
    fault::run_job(&["--short".to_owned()])?;
    // Last, so that the summary of the tests ends the output.
    suite::run_job(&[])
}
