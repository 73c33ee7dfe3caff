//! Programs that jobs need and that `cargo build` does not provide.

use crate::failure::{Failure, Outcome};
use crate::process::{cargo, command, on_path, run, run_quietly, target};

/// A program outside this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Its name on the path.
    pub program: &'static str,
    /// Where to get it when it is missing.
    pub from: Origin,
    /// The purpose, for messages.
    pub needed_for: &'static str,
}

/// Where to get a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Packages of Debian and its derivatives.
    Apt(&'static [&'static str]),
    /// A crate, built from source; a version may follow: `name@1.2.3`.
    Cargo(&'static str),
}

/// Packages of PyPI, in a virtual environment below the target folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Name of the virtual environment.
    pub name: &'static str,
    /// The packages with their versions.
    pub packages: &'static [&'static str],
    /// What an installed environment can import.
    pub module: &'static str,
}

/// Installs the packages of a peer unless they are installed; returns whether they are. A missing
/// peer is not a failure: the tests that need it report that they are skipped.
pub(crate) fn ensure_peer(peer: Peer) -> bool {
    let folder = target().join("peers").join(peer.name);
    let python = folder.join("bin/python").to_string_lossy().into_owned();
    let import = format!("import {}", peer.module);
    let is_installed = || run_quietly(&mut command(&python, &["-c", &import]));
    if is_installed() {
        return true;
    }
    let folder = folder.to_string_lossy().into_owned();
    let install = [&["-m", "pip", "install", "--quiet"], peer.packages].concat();
    let is_created = run_quietly(&mut command("python3", &["-m", "venv", &folder]))
        && run_quietly(&mut command(&python, &install));
    is_created && is_installed()
}

/// Packages of npm, in a folder below the target folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePeer {
    /// Name of the folder.
    pub name: &'static str,
    /// The packages with their versions.
    pub packages: &'static [&'static str],
    /// A program of an installed folder.
    pub program: &'static str,
}

/// Installs the packages of a peer of Node.js unless they are installed; returns whether they are.
pub(crate) fn ensure_node_peer(peer: NodePeer) -> bool {
    let folder = target().join("peers").join(peer.name);
    let program = folder.join("node_modules/.bin").join(peer.program);
    if program.exists() {
        return true;
    }
    let folder = folder.to_string_lossy().into_owned();
    let options = ["install", "--silent", "--no-fund", "--no-audit", "--prefix"];
    let install = [&options[..], &[&folder], peer.packages].concat();
    run_quietly(&mut command("npm", &install)) && program.exists()
}

/// Installs every tool that is missing.
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
            "{} is not installed; it is needed for {}",
            tool.program, tool.needed_for
        );
    }
    if !packages.is_empty() {
        apt(&packages)?;
    }
    for tool in missing {
        if let Origin::Cargo(name) = tool.from {
            // Unoptimized: these tools run for seconds, and an optimized build takes minutes.
            run(&mut cargo(&["install", "--locked", "--debug", name]))?;
        }
    }
    Ok(())
}

fn missing(tools: &[Tool], is_installed: impl Fn(&str) -> bool) -> Vec<Tool> {
    tools
        .iter()
        .filter(|tool| !is_installed(tool.program))
        .copied()
        .collect()
}

fn apt(packages: &[&str]) -> Outcome {
    if !on_path("apt-get") {
        let list = packages.join(", ");
        return Err(Failure::Run(format!(
            "apt-get is not available: install these packages: {list}"
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
    fn installed_tools_are_not_missing() {
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
