//! Files as they are installed, below one folder.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::PROGRAMS;
use super::{Release, licences};
use crate::failure::{Outcome, file_failed};
use crate::process::{command, fresh_folder, output, root, run};

/// A folder with `usr` and `etc` of a release.
pub(super) struct Staging {
    /// The folder.
    pub(super) folder: PathBuf,
}

/// Files of the repository, and where they are installed.
const FILES: &[(&str, &str)] = &[
    (
        "deploy/traceholdd.service",
        "usr/lib/systemd/system/traceholdd.service",
    ),
    ("deploy/sysusers.conf", "usr/lib/sysusers.d/tracehold.conf"),
    ("deploy/tmpfiles.conf", "usr/lib/tmpfiles.d/tracehold.conf"),
    (
        "deploy/package/traceholdd.toml",
        "etc/tracehold/traceholdd.toml",
    ),
    (
        "config/default.toml",
        "usr/share/doc/tracehold/default.toml",
    ),
    (
        "deploy/package/copyright",
        "usr/share/doc/tracehold/copyright",
    ),
    ("LICENSE-MIT", "usr/share/doc/tracehold/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/tracehold/LICENSE-APACHE"),
    (
        "deploy/prometheus/alerts.yaml",
        "usr/share/doc/tracehold/examples/alerts.yaml",
    ),
    (
        "deploy/grafana/tracehold.json",
        "usr/share/doc/tracehold/examples/dashboard.json",
    ),
];

/// Completions: program, shell, and where the shell finds them.
const COMPLETIONS: &[(&str, &str, &str)] = &[
    (
        "tracehold",
        "bash",
        "usr/share/bash-completion/completions/tracehold",
    ),
    (
        "traceholdd",
        "bash",
        "usr/share/bash-completion/completions/traceholdd",
    ),
    (
        "tracehold",
        "zsh",
        "usr/share/zsh/vendor-completions/_tracehold",
    ),
    (
        "traceholdd",
        "zsh",
        "usr/share/zsh/vendor-completions/_traceholdd",
    ),
    (
        "tracehold",
        "fish",
        "usr/share/fish/vendor_completions.d/tracehold.fish",
    ),
    (
        "traceholdd",
        "fish",
        "usr/share/fish/vendor_completions.d/traceholdd.fish",
    ),
];

/// Where the pages of the manual are.
const MANUAL: &str = "usr/share/man/man1";

impl Staging {
    /// Collects the files of a release.
    pub(super) fn make(release: &Release, programs: &Path) -> Outcome<Self> {
        let staging = Self {
            folder: fresh_folder("packages-staging")?,
        };
        for program in PROGRAMS {
            let to = format!("usr/bin/{program}");
            staging.write(&to, &read(&programs.join(program))?, 0o755)?;
        }
        for (from, to) in FILES {
            staging.write(to, &read(&root().join(from))?, 0o644)?;
        }
        for (program, shell, to) in COMPLETIONS {
            let mut made = Command::new(programs.join(program));
            let script = output(made.args(["completions", shell]))?;
            staging.write(to, script.as_bytes(), 0o644)?;
        }
        let changes = "usr/share/doc/tracehold/changelog";
        staging.write(changes, &read(&root().join("CHANGELOG.md"))?, 0o644)?;
        let notices = "usr/share/doc/tracehold/THIRD-PARTY-LICENSES";
        staging.write(notices, licences::collect()?.as_bytes(), 0o644)?;
        staging.write_manual(programs)?;
        for compressed in [changes, notices] {
            run(command("gzip", &["-9n"]).arg(staging.folder.join(compressed)))?;
        }
        staging.date(release)?;
        Ok(staging)
    }

    fn write_manual(&self, programs: &Path) -> Outcome {
        let folder = self.folder.join(MANUAL);
        for program in PROGRAMS {
            run(Command::new(programs.join(program))
                .arg("manual")
                .arg(&folder))?;
        }
        let mut compress = command("gzip", &["-9n"]);
        for name in super::names(&folder)? {
            compress.arg(folder.join(name));
        }
        run(&mut compress)
    }

    /// Writes a file with its folders.
    pub(super) fn write(&self, to: &str, bytes: &[u8], mode: u32) -> Outcome {
        write_file(&self.folder.join(to), bytes, mode)
    }

    /// Gives every file the time of the release.
    fn date(&self, release: &Release) -> Outcome {
        let time = format!("@{}", release.epoch);
        run(command("find", &[]).arg(&self.folder).args([
            "-exec",
            "touch",
            "--no-dereference",
            "--date",
            &time,
            "{}",
            "+",
        ]))
    }
}

/// Writes a file with its folders.
pub(super) fn write_file(path: &Path, bytes: &[u8], mode: u32) -> Outcome {
    let failed = file_failed(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(&failed)?;
    }
    std::fs::write(path, bytes).map_err(&failed)?;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(&failed)
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).map_err(file_failed(path))
}
