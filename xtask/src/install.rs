//! Programs that tests and benchmarks need and that cargo does not bring.

use crate::failure::{Failure, Outcome};
use crate::process::{cargo, command, on_path, run, run_quietly, target};

/// A program outside this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// What is looked for on the path.
    pub program: &'static str,
    /// Where it comes from when it is not there.
    pub from: Origin,
    /// Who needs it.
    pub needed_for: &'static str,
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Packages of Debian and its children.
    Apt(&'static [&'static str]),
    /// A crate, installed from source.
    Cargo(&'static str),
}

/// Packages of PyPI in a folder of their own below the target folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Name of the folder.
    pub name: &'static str,
    /// The packages with their versions.
    pub packages: &'static [&'static str],
    /// What can be imported once they are there.
    pub module: &'static str,
}

/// Brings the packages of a peer unless they are there; gives whether they are. A peer that cannot
/// be brought is no failure: the cases that need it say that they were skipped.
pub(crate) fn ensure_peer(peer: Peer) -> bool {
    let folder = target().join("peers").join(peer.name);
    let python = folder.join("bin/python").to_string_lossy().into_owned();
    let import = format!("import {}", peer.module);
    let is_there = || run_quietly(&mut command(&python, &["-c", &import]));
    if is_there() {
        return true;
    }
    let folder = folder.to_string_lossy().into_owned();
    let install = [&["-m", "pip", "install", "--quiet"], peer.packages].concat();
    let is_brought = run_quietly(&mut command("python3", &["-m", "venv", &folder]))
        && run_quietly(&mut command(&python, &install));
    is_brought && is_there()
}

/// Brings every tool that is not there yet.
pub(crate) fn ensure(tools: &[Tool]) -> Outcome {
    let missing = missing(tools, on_path);
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|tool| match tool.from {
            Origin::Apt(packages) => packages,
            Origin::Cargo(_) => &[],
        })
        .copied()
        .collect();
    for tool in &missing {
        eprintln!(
            "{} is not here; needed for {}",
            tool.program, tool.needed_for
        );
    }
    if !packages.is_empty() {
        apt(&packages)?;
    }
    for tool in missing {
        if let Origin::Cargo(name) = tool.from {
            run(&mut cargo(&["install", "--locked", name]))?;
        }
    }
    Ok(())
}

fn missing(tools: &[Tool], is_there: impl Fn(&str) -> bool) -> Vec<Tool> {
    tools
        .iter()
        .filter(|tool| !is_there(tool.program))
        .copied()
        .collect()
}

fn apt(packages: &[&str]) -> Outcome {
    if !on_path("apt-get") {
        let list = packages.join(", ");
        return Err(Failure::Run(format!(
            "no apt-get here: install these yourself: {list}"
        )));
    }
    let elevate: &[&str] = if on_path("sudo") { &["sudo"] } else { &[] };
    let apt_get = |arguments: &[&str]| {
        let words = [
            elevate,
            &["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"],
            arguments,
        ]
        .concat();
        let mut command = command(words[0], &words[1..]);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(&mut apt_get(&["update"]))?;
    run(apt_get(&["install", "-y", "--no-install-recommends"]).args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing() {
        let wrk = Tool {
            program: "wrk",
            from: Origin::Apt(&["wrk"]),
            needed_for: "ranges",
        };
        let fio = Tool {
            program: "fio",
            from: Origin::Apt(&["fio"]),
            needed_for: "ingest",
        };
        assert_eq!(missing(&[wrk, fio], |name| name == "wrk"), [fio]);
    }
}
