//! `cargo xtask check`: all that a change must pass before it lands.

use crate::failure::Outcome;
use crate::process::{cargo, on_path, run};
use crate::{suite, tidy};

/// The cheapest check first.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--", "--check"]))?;
    tidy::run_job(&[])?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ];
    run(&mut cargo(&clippy))?;
    // Building this tool takes longer than all the rest: it runs where it is there.
    if on_path("cargo-deny") {
        let deny = ["deny", "--offline", "--log-level", "error", "check"];
        run(cargo(&deny).args(["bans", "licenses", "sources"]))?;
    }
    suite::run_job(arguments)
}
