//! Files of finalized storages that stay open between requests.
//!
//! These files do not change while they are open, so all readers share one. `close` is called when
//! a storage is deleted, or a derived file of it is replaced.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use storage_format::StorageId;

use crate::range::Resource;

/// Maximum number of open files; beyond it, the one opened first is closed.
const OPEN_FILES_MAX: usize = 256;

/// The open files.
#[derive(Default)]
pub(crate) struct OpenFiles {
    open: RwLock<Open>,
    /// Number of calls of `close`: a file opened before a call is not added after it.
    closings: AtomicU64,
}

#[derive(Default)]
struct Open {
    files: HashMap<StorageId, HashMap<Box<str>, Arc<Resource>>>,
    /// In the order of opening.
    order: VecDeque<(StorageId, Box<str>)>,
}

/// A point in time before a file was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u64);

impl OpenFiles {
    /// The file, if it is open.
    pub(crate) fn get(&self, id: StorageId, name: &str) -> Option<Arc<Resource>> {
        self.open.read().files.get(&id)?.get(name).cloned()
    }

    /// Call this before opening a file, and pass the result to `insert`.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.closings.load(Ordering::SeqCst))
    }

    /// Keeps a file open, unless files were closed since `before`.
    pub(crate) fn insert(&self, before: Ticket, id: StorageId, name: &str, file: &Arc<Resource>) {
        let mut open = self.open.write();
        if before.0 != self.closings.load(Ordering::SeqCst) {
            return;
        }
        let name: Box<str> = name.into();
        if open
            .files
            .entry(id)
            .or_default()
            .insert(name.clone(), Arc::clone(file))
            .is_none()
        {
            open.order.push_back((id, name));
        }
        while open.order.len() > OPEN_FILES_MAX {
            let Some((id, name)) = open.order.pop_front() else {
                break;
            };
            if let Some(files) = open.files.get_mut(&id) {
                files.remove(&name);
                if files.is_empty() {
                    open.files.remove(&id);
                }
            }
        }
    }

    /// Closes the files whose disk space was given to others.
    pub(crate) fn close_given_up(&self) {
        let mut open = self.open.write();
        let Open { files, order } = &mut *open;
        for files in files.values_mut() {
            files.retain(|_, file| !file.is_given_up());
        }
        files.retain(|_, files| !files.is_empty());
        order.retain(|(id, name)| files.get(id).is_some_and(|files| files.contains_key(name)));
    }

    /// Closes all files of a storage that was deleted or changed.
    pub(crate) fn close(&self, id: StorageId) {
        let mut open = self.open.write();
        self.closings.fetch_add(1, Ordering::SeqCst);
        open.files.remove(&id);
        open.order.retain(|(of, _)| *of != id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use storage_format::StorageId;

    use super::{OPEN_FILES_MAX, OpenFiles};
    use crate::range::{Content, Resource};

    #[test]
    fn files_stay_open_up_to_the_limit_and_until_their_storage_is_deleted() {
        let open = OpenFiles::default();
        let content = Content::Memory(bytes::Bytes::new());
        let file = Arc::new(Resource::new(content, "x", None, true));
        let (one, other) = (StorageId::new(1, [1; 10]), StorageId::new(2, [2; 10]));
        open.insert(open.ticket(), one, "a", &file);
        for number in 0..OPEN_FILES_MAX {
            open.insert(open.ticket(), other, &number.to_string(), &file);
            open.insert(open.ticket(), other, &number.to_string(), &file);
        }
        assert!(open.get(one, "a").is_none(), "the first file is still open");
        assert!(open.get(other, "0").is_some());
        let before = open.ticket();
        open.close(other);
        assert!(open.get(other, "0").is_none());
        open.insert(before, other, "0", &file);
        assert!(
            open.get(other, "0").is_none(),
            "a file of a deleted storage stayed open"
        );
        assert!(open.open.read().order.is_empty());
    }
}
