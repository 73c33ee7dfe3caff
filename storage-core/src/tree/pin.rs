//! Keeps files that were replaced until their last reader has ended.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use crate::removals::remove_later;

/// Removes files when the last holder drops it.
#[derive(Debug, Default)]
pub(crate) struct FilePin {
    replaced: Mutex<Vec<PathBuf>>,
    /// What readers hold that began after these files were replaced. Readers from before may also
    /// read files that are replaced later, so they hold it, too.
    next: OnceLock<Arc<FilePin>>,
}

impl FilePin {
    /// Lets the last holder remove these files.
    pub(crate) fn replace(&self, files: Vec<PathBuf>) {
        if crate::sabotaged!("remove-pinned") {
            files.into_iter().for_each(remove_later);
            return;
        }
        self.replaced.lock().extend(files);
    }

    /// As [`Self::replace`]; returns what readers hold from now on.
    pub(super) fn replace_some(&self, files: Vec<PathBuf>) -> Arc<FilePin> {
        self.replace(files);
        Arc::clone(self.next.get_or_init(Arc::default))
    }
}

impl Drop for FilePin {
    fn drop(&mut self) {
        for path in self.replaced.get_mut().drain(..) {
            remove_later(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::removals::done;

    /// Files are replaced one after another; a reader from before each of them holds all that it
    /// may still read.
    #[tokio::test]
    async fn a_reader_keeps_files_that_are_replaced_while_it_reads() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..3)
            .map(|at| folder.path().join(at.to_string()))
            .collect();
        for file in &files {
            std::fs::write(file, b"x").unwrap();
        }
        let are_there = |wanted: [bool; 3]| {
            let found: Vec<_> = files.iter().map(|file| file.exists()).collect();
            assert_eq!(found, wanted);
        };
        let mut of_tree = Arc::<FilePin>::default();
        let first = Arc::clone(&of_tree);
        of_tree = of_tree.replace_some(vec![files[0].clone()]);
        let second = Arc::clone(&of_tree);
        of_tree = of_tree.replace_some(vec![files[1].clone()]);
        of_tree = of_tree.replace_some(vec![files[2].clone()]);
        are_there([true, true, true]);
        drop(second);
        done(folder.path()).await;
        are_there([true, true, true]);
        drop(first);
        done(folder.path()).await;
        are_there([false, false, false]);
        drop(of_tree);
    }
}
