//! The plan of a test for operations that block the calling thread: it is found by the name of the
//! file.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;
use tokio::sync::OwnedRwLockReadGuard;

use super::{
    FaultPlan, Operation,
    names::{NameChange, exchanged, moved},
};

/// The folders that plans cover.
static COVERED: Mutex<Vec<(PathBuf, Weak<FaultPlan>)>> = Mutex::new(Vec::new());

/// An operation that has begun; `None` where no plan covers the file.
pub(in crate::io) type Begun = Option<(Arc<FaultPlan>, OwnedRwLockReadGuard<()>)>;

impl FaultPlan {
    /// Lets blocking operations in this folder go through the plan.
    pub(crate) fn cover(self: &Arc<Self>, folder: &Path) {
        let mut covered = COVERED.lock();
        covered.retain(|(_, plan)| plan.strong_count() > 0);
        covered.push((folder.to_owned(), Arc::downgrade(self)));
    }

    /// Lets names of files follow the rename of a file or folder.
    fn follow(&self, renamed: impl Fn(&Path) -> PathBuf) {
        let mut state = self.state.lock();
        let unsynced = std::mem::take(&mut state.unsynced).into_iter();
        state.unsynced = unsynced
            .map(|(path, writes)| (renamed(&path), writes))
            .collect();
        let failed = std::mem::take(&mut state.after_failed_sync).into_iter();
        state.after_failed_sync = failed
            .map(|(path, count)| (renamed(&path), count))
            .collect();
        for change in &mut state.unsynced_names {
            change.follow(&renamed);
        }
    }

    /// Notes a rename, before it is made.
    pub(super) fn note_rename(&self, from: &Path, to: &Path) {
        if !from.exists() {
            return;
        }
        self.forget_bytes(to);
        self.follow(|name| moved(name, from, to));
        self.note(|| NameChange::renamed(from, to));
    }
}

/// The plan that covers a file; waits until its disk serves it.
fn enter(path: &Path) -> Begun {
    let plan = {
        let covered = COVERED.lock();
        let mut plans = covered.iter().rev();
        plans.find_map(|(folder, plan)| plan.upgrade().filter(|_| path.starts_with(folder)))
    };
    let plan = plan?;
    let disk = wait(plan.enter());
    Some((plan, disk))
}

/// Begins an operation; fails as the plan says.
fn begin(operation: Operation, path: &Path) -> io::Result<Begun> {
    let begun = enter(path);
    if let Some((plan, _)) = &begun {
        plan.check(operation)?;
    }
    Ok(begun)
}

pub(in crate::io) fn create(path: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::Open, path)?;
    if let Some((plan, _)) = &begun
        && !path.exists()
    {
        plan.forget_bytes(path);
        plan.note(|| NameChange::of(path));
    }
    Ok(begun)
}

pub(in crate::io) fn rename(from: &Path, to: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::Rename, to)?;
    if let Some((plan, _)) = &begun {
        plan.note_rename(from, to);
    }
    Ok(begun)
}

pub(in crate::io) fn exchange(one: &Path, other: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::Rename, other)?;
    if let Some((plan, _)) = &begun {
        plan.follow(|name| exchanged(name, one, other));
        plan.note(|| NameChange::exchanged(one, other));
    }
    Ok(begun)
}

pub(in crate::io) fn remove(path: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::Remove, path)?;
    if let Some((plan, _)) = &begun
        && path.exists()
    {
        plan.note(|| NameChange::of(path));
        plan.forget_bytes(path);
    }
    Ok(begun)
}

/// A removal that fails has removed a part of the folder.
pub(in crate::io) fn remove_folder(path: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::Remove, path);
    if begun.is_err()
        && let Ok(names) = std::fs::read_dir(path)
    {
        for name in names.flatten().step_by(2) {
            let _ = std::fs::remove_file(name.path());
        }
    }
    let begun = begun?;
    if let Some((plan, _)) = &begun
        && path.exists()
    {
        plan.note(|| NameChange::of(path));
    }
    Ok(begun)
}

pub(in crate::io) fn set_length(path: &Path, length: u64) -> io::Result<Begun> {
    let begun = begin(Operation::SetLength, path)?;
    if let Some((plan, _)) = &begun {
        plan.cut_unsynced(path, length);
    }
    Ok(begun)
}

pub(in crate::io) fn sync_folder(path: &Path) -> io::Result<Begun> {
    let begun = begin(Operation::SyncFolder, path)?;
    if let Some((plan, _)) = &begun {
        plan.names_synced(path);
    }
    Ok(begun)
}

/// Begins a write; `None` when the plan takes the bytes, until the next sync of the file.
pub(in crate::io) fn write(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<Option<Begun>> {
    let begun = begin(Operation::Write, path)?;
    let is_taken = (begun.as_ref()).is_some_and(|(plan, _)| plan.keeps(path, offset, bytes));
    Ok((!is_taken).then_some(begun))
}

pub(in crate::io) fn sync(path: &Path) -> io::Result<Begun> {
    let begun = enter(path);
    if let Some((plan, _)) = &begun {
        plan.sync(path)?;
    }
    Ok(begun)
}

/// Waits for a future on this thread, which may be one of a runtime.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
