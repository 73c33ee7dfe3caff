//! A small file system in memory that a test fills and empties.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Room for what a scenario writes.
const OPTIONS: &str = "size=48m,nr_inodes=400";
const CHUNK_BYTES: usize = 64 << 10;

/// What a file system may have none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scarce {
    Bytes,
    Inodes,
}

/// A mounted file system; unmounted when dropped.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one on `folder`; `None` when this process may not mount.
    pub(super) fn mount(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).expect("the folder of a run can be written");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", OPTIONS, "tmpfs"])
            .arg(folder)
            .stderr(Stdio::null())
            .status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        is_mounted.then(|| Self(folder.to_owned()))
    }

    /// Uses up all that is left.
    pub(super) fn fill(&self, scarce: Scarce) {
        let folder = self.0.join("filler");
        fs::create_dir_all(&folder).expect("there is room for a folder");
        match scarce {
            Scarce::Bytes => {
                let mut file = File::create(folder.join("bytes")).expect("there is an inode");
                // The last chunk is written in part.
                while file.write_all(&[1; CHUNK_BYTES]).is_ok() {}
                while file.write_all(&[1]).is_ok() {}
            }
            Scarce::Inodes => {
                let mut names = 0..;
                let mut create = || {
                    names
                        .next()
                        .map(|name| File::create(folder.join(format!("{name}"))))
                };
                while create().is_some_and(|created| created.is_ok()) {}
            }
        }
    }

    /// Gives back what [`Self::fill`] took.
    pub(super) fn free(&self) {
        fs::remove_dir_all(self.0.join("filler")).expect("what was created can be removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The processes that use it have ended; a failure leaves a mount and nothing else.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
