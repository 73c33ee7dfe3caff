//! The two programs, linked with everything that they need.

use std::path::{Path, PathBuf};

use crate::failure::{Outcome, file_failed};
use crate::install::{self, Origin, Tool};
use crate::process::{cargo, command, fresh_folder, on_path, run, target};

/// The C library is linked statically for this target: the programs run on every distribution.
pub(super) const TARGET: &str = "x86_64-unknown-linux-musl";

/// The programs.
pub(super) const PROGRAMS: [&str; 2] = ["traceholdd", "tracehold"];

const TOOLS: &[Tool] = &[
    Tool {
        program: "musl-gcc",
        from: Origin::Apt(&["musl-tools"]),
        needed_for: "compiling the C code of zstd, ring and mimalloc for static programs",
    },
    Tool {
        program: "strip",
        from: Origin::Apt(&["binutils"]),
        needed_for: "removing symbols from programs",
    },
];

/// Builds the programs and returns their folder.
pub(super) fn build(profile: &str) -> Outcome<PathBuf> {
    install::ensure(TOOLS)?;
    if on_path("rustup") {
        run(&mut command("rustup", &["target", "add", TARGET]))?;
    }
    let packages = ["--package", "server", "--package", "client"];
    let options = [
        "build",
        "--locked",
        "--profile",
        profile,
        "--target",
        TARGET,
    ];
    let mut build = cargo(&[&options[..], &packages].concat());
    run(build.env("CC_x86_64_unknown_linux_musl", "musl-gcc"))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target().join(TARGET).join(folder))
}

/// Copies of the programs without symbols. Those with symbols, for debuggers and profilers, stay
/// where cargo wrote them.
pub(super) fn strip_all(built: &Path) -> Outcome<PathBuf> {
    let stripped = fresh_folder("packages-programs")?;
    for program in PROGRAMS {
        strip(&built.join(program), &stripped.join(program))?;
    }
    Ok(stripped)
}

fn strip(from: &Path, to: &Path) -> Outcome {
    std::fs::copy(from, to).map_err(file_failed(from))?;
    run(command("strip", &[]).arg(to))
}
