//! `cargo xtask wheel`: the packages of Python, built and tried.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Outcome};
use crate::install::{self, Peer};
use crate::options::Options;
use crate::process::{command, fresh_folder, root, run, target};

/// What builds the packages.
const BUILDERS: Peer = Peer {
    name: "wheel",
    packages: &["hatchling==1.33.0", "maturin==1.16.0"],
    module: "hatchling, maturin",
};

/// Builds the client and the command line as wheels, and installs both where nothing else is.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let profile: String = Options::parse(arguments)?.get("profile", "dist".to_owned())?;
    if !install::ensure_peer(BUILDERS) {
        return Err(Failure::Run(
            "the packages that build wheels cannot be installed from PyPI".to_owned(),
        ));
    }
    let builder = target()
        .join("peers")
        .join(BUILDERS.name)
        .join("bin/python");
    let wheels = fresh_folder("wheels")?;
    run(Command::new(&builder)
        .args(["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"])
        .args(["--no-build-isolation", "--wheel-dir"])
        .args([&wheels, &root().join("clients/python")]))?;
    run(Command::new(&builder)
        .args(["-m", "maturin", "build", "--profile", &profile, "--out"])
        .arg(&wheels)
        .current_dir(root().join("clients/command"))
        .env("CARGO_TARGET_DIR", target()))?;
    try_wheels(&builder, &built(&wheels)?)
}

/// Installs the wheels in an empty environment and starts what they contain.
fn try_wheels(builder: &Path, wheels: &[PathBuf]) -> Outcome {
    let environment = fresh_folder("wheel-trial")?;
    let folder = environment.to_string_lossy();
    run(&mut command(
        "python3",
        &["-m", "venv", "--without-pip", &folder],
    ))?;
    let python = environment.join("bin/python");
    run(Command::new(builder)
        .args(["-m", "pip", "--python"])
        .arg(&python)
        .args(["install", "--quiet", "--no-index"])
        .args(wheels))?;
    run(Command::new(environment.join("bin/tracehold")).arg("--version"))?;
    run(Command::new(&python).args(["-c", "import tracehold; print(tracehold.__version__)"]))?;
    for wheel in wheels {
        let bytes = wheel.metadata().map_or(0, |metadata| metadata.len());
        println!("{} ({bytes} bytes)", wheel.display());
    }
    Ok(())
}

/// The wheels in a folder, by name.
fn built(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let failure = |source| Failure::File {
        path: folder.to_owned(),
        source,
    };
    let mut wheels = Vec::new();
    for entry in folder.read_dir().map_err(failure)? {
        wheels.push(entry.map_err(failure)?.path());
    }
    wheels.sort();
    match wheels.len() {
        2 => Ok(wheels),
        count => Err(Failure::Run(format!(
            "{} has {count} wheels: the client and the command line are expected",
            folder.display()
        ))),
    }
}
