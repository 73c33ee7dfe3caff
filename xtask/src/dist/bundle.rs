//! The programs in a folder, for machines without dpkg and for those who are not root.

use super::{Release, staging::Staging};
use crate::failure::Outcome;
use crate::process::{command, run};

/// Makes `tracehold-VERSION-x86_64-linux.tar.gz`: what is installed below `usr`, and the settings.
pub(super) fn make(release: &Release, staging: &Staging) -> Outcome {
    let name = format!("tracehold-{}", release.version);
    let to = release.folder.join(format!("{name}-x86_64-linux.tar.gz"));
    let time = format!("--mtime=@{}", release.epoch);
    // Unpacked anywhere it is NAME/bin/tracehold, NAME/share/man, NAME/etc.
    let transform = format!("--transform=s,^,{name}/,");
    let mut tar = command(
        "tar",
        &["--sort=name", "--owner=0", "--group=0", "--numeric-owner"],
    );
    tar.args([&time, &transform, "--use-compress-program=gzip -9n"]);
    tar.args(["--create", "--file"]).arg(to);
    tar.args(["-C", "usr", "bin", "lib", "share", "-C", "..", "etc"]);
    run(tar.current_dir(&staging.folder))
}
