//! Control of the fault points of a running server: files in a folder that both know.
//!
//! `storage-core/src/io/fault_points.rs` describes the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Work in the background that reaches no point for this long has ended.
const QUIET: Duration = Duration::from_millis(300);

/// The folder with the files.
pub(super) struct Control(PathBuf);

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Kill,
    Hold,
}

impl Control {
    /// Creates the folder.
    pub(super) fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("the folder of a run can be written");
        Self(folder.to_owned())
    }

    pub(super) fn environment(&self) -> (String, String) {
        let folder = self.0.display().to_string();
        ("FAULT_POINTS_FOLDER".to_owned(), folder)
    }

    /// Notes the points that are reached from now on.
    pub(super) fn note(&self) {
        self.plan("note");
    }

    /// Arms the point for the time that it is reached for the `nth` time from now.
    pub(super) fn arm(&self, point: &str, nth: u64, at: At) {
        let action = match at {
            At::Kill => "kill",
            At::Hold => "hold",
        };
        self.plan(&format!("{point} {nth} {action}"));
    }

    /// Renamed into place, because the server may read it at any moment.
    fn plan(&self, text: &str) {
        let new = self.0.join("plan.new");
        fs::write(&new, text).expect("the folder of a run can be written");
        fs::rename(&new, self.0.join("plan")).expect("the folder of a run can be written");
    }

    pub(super) fn disarm(&self) {
        // There may be no plan.
        fs::remove_file(self.0.join("plan")).ok();
    }

    /// How often each point was reached since the last call.
    pub(super) fn take_reached(&self) -> BTreeMap<String, u64> {
        let path = self.0.join("reached");
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::remove_file(&path).ok();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Waits until no point was reached for a while.
    pub(super) fn wait_until_quiet(&self) {
        let length = || fs::metadata(self.0.join("reached")).map_or(0, |file| file.len());
        let mut known = None;
        while known != Some(length()) {
            known = Some(length());
            thread::sleep(QUIET);
        }
    }

    /// Whether the server waits at the armed point.
    pub(super) fn is_held(&self) -> bool {
        self.0.join("held").exists()
    }

    pub(super) fn release(&self) {
        fs::write(self.0.join("released"), "").expect("the folder of a run can be written");
    }
}
