//! Each file once, however often and by whatever name it is given.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files and folders that were given so far, by device and inode.
#[derive(Debug, Default)]
pub struct Once {
    seen: BTreeMap<(u64, u64), PathBuf>,
    repeated: Vec<String>,
}

impl Once {
    /// Whether nothing that was given so far is this file or folder. Pipes and devices are read as
    /// often as they are named; what cannot be found is left to its reader.
    pub fn is_first(&mut self, path: &Path) -> bool {
        let Ok(metadata) = fs::metadata(path) else {
            return true;
        };
        if !metadata.is_file() && !metadata.is_dir() {
            return true;
        }
        let key = (metadata.dev(), metadata.ino());
        let Some(first) = self.seen.get(&key) else {
            self.seen.insert(key, path.to_owned());
            return true;
        };
        let (path, first) = (path.display().to_string(), first.display().to_string());
        self.repeated.push(if path == first {
            format!("{path} is named more than once; it is read once")
        } else {
            format!("{path} is the same as {first}; it is read once")
        });
        false
    }

    /// A line for each that was given before.
    pub fn into_repeated(self) -> Vec<String> {
        self.repeated
    }
}
