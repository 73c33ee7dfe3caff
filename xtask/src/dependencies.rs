//! `cargo xtask dependencies`: licences, banned crates, sources and advisories of all dependencies,
//! checked by cargo-deny against `deny.toml`.

use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::process::{cargo, run, run_quietly};

const CARGO_DENY: Tool = Tool {
    program: "cargo-deny",
    from: Origin::Cargo("cargo-deny@0.20.2"),
    needed_for: "checking dependencies",
};

/// Advisories are checked only where their database can be fetched: it is a repository on GitHub.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    if let Some(argument) = arguments.first() {
        let text = format!("dependencies accepts no arguments, not {argument:?}");
        return Err(Failure::Usage(text));
    }
    install::ensure(&[CARGO_DENY])?;
    let deny = ["deny", "--log-level", "error"];
    run(cargo(&deny).args(["check", "bans", "licenses", "sources"]))?;
    if run_quietly(cargo(&deny).args(["fetch", "db"])) {
        return run(cargo(&deny).args(["check", "--disable-fetch", "advisories"]));
    }
    println!("the advisory database cannot be fetched: advisories are not checked");
    Ok(())
}
