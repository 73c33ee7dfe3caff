//! The Debian package.

use std::path::Path;

use super::Release;
use super::staging::{Staging, write_file};
use crate::failure::{Outcome, file_failed};
use crate::process::{command, fresh_folder, output, root, run};

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// The file that dpkg keeps when the operator has changed it.
const CONFIGURATION: &str = "/etc/tracehold/traceholdd.toml\n";

/// Makes the package with this version in `folder`.
pub(super) fn make(release: &Release, staging: &Staging, version: &str, folder: &Path) -> Outcome {
    let tree = fresh_folder("packages-deb")?;
    let from = staging.folder.join(".");
    run(command("cp", &["--archive"]).arg(&from).arg(&tree))?;
    let control = tree.join("DEBIAN");
    let kibibytes = output(command("du", &["--summarize", "--apparent-size", "-k"]).arg(&tree))?;
    let kibibytes = kibibytes.split('\t').next().unwrap_or_default();
    let template = root().join("deploy/package/control");
    let text = std::fs::read_to_string(&template).map_err(file_failed(&template))?;
    let text = text.replace("@VERSION@", version);
    let text = text.replace("@KIBIBYTES@", kibibytes);
    write_file(&control.join("control"), text.as_bytes(), 0o644)?;
    write_file(&control.join("conffiles"), CONFIGURATION.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let path = root().join("deploy/package").join(script);
        let text = std::fs::read(&path).map_err(file_failed(&path))?;
        write_file(&control.join(script), &text, 0o755)?;
    }
    let mut sums = command(
        "find",
        &["etc", "usr", "-type", "f", "-exec", "md5sum", "{}", "+"],
    );
    let sums = output(sums.current_dir(&tree))?;
    let mut sums: Vec<&str> = sums.lines().collect();
    sums.sort_unstable_by_key(|line| line.split("  ").nth(1));
    let sums = sums.join("\n") + "\n";
    write_file(&control.join("md5sums"), sums.as_bytes(), 0o644)?;
    let package = folder.join(format!("tracehold_{version}_amd64.deb"));
    run(
        command("dpkg-deb", &["--root-owner-group", "-Zxz", "--build"])
            .arg(&tree)
            .arg(&package)
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )
}
