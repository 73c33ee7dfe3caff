//! `cargo xtask fuzz`: runs one fuzz target of the `fuzz/` package for a while.

use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::process::{command, root, run};

const CARGO_FUZZ: Tool = Tool {
    program: "cargo-fuzz",
    from: Origin::Cargo("cargo-fuzz"),
    needed_for: "running fuzz targets",
};

const SECONDS_DEFAULT: u32 = 60;

/// An input that takes more memory than this is a fault of the parser.
const RSS_LIMIT_MIB: u32 = 1024;

/// `NAME [SECONDS]` runs one target; without arguments the targets are listed.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let targets = targets()?;
    let Some(name) = arguments.first() else {
        println!("fuzz targets: {}", targets.join(", "));
        return Ok(());
    };
    if !targets.contains(name) {
        let known = targets.join(", ");
        return Err(Failure::Usage(format!(
            "no fuzz target {name:?}; there are: {known}"
        )));
    }
    let seconds = match arguments.get(1) {
        None => SECONDS_DEFAULT,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::Usage(format!("{text:?} is not a number of seconds")))?,
    };
    install::ensure(&[CARGO_FUZZ])?;
    // libFuzzer's instrumentation needs compiler flags of nightly. The cargo that runs this program
    // is not rustup's proxy, so the proxy is called by name.
    let limits = [
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={RSS_LIMIT_MIB}"),
        "-timeout=20".to_owned(),
    ];
    let mut fuzz = command(
        "rustup",
        &["run", "nightly", "cargo", "fuzz", "run", name, "--"],
    );
    fuzz.args(limits)
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    run(&mut fuzz)
}

/// The names of the files in `fuzz/fuzz_targets`, sorted.
fn targets() -> Outcome<Vec<String>> {
    let path = root().join("fuzz/fuzz_targets");
    let failure = |source| Failure::File {
        path: path.clone(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failure)? {
        let file = entry.map_err(failure)?.path();
        if file.extension().is_some_and(|ending| ending == "rs") {
            names.extend(
                file.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}
