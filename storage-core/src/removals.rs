//! Removes files that were replaced, on a thread of its own.
//!
//! The last reader of such a file may be a task that serves requests, and the removal of a large
//! file takes as long as the file system needs to free its blocks. So a reader only says that the
//! file can go. Who needs a folder without such files waits for those of this folder only, and
//! removes what nobody has begun to remove.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
};

use io_trace::Scope;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::io::remove_file;

/// A file to remove.
#[derive(Debug)]
struct Order {
    path: PathBuf,
    scope: Option<Scope>,
}

#[derive(Debug, Default)]
struct State {
    /// As many as there are replaced files on the disk, and no more.
    waiting: VecDeque<Order>,
    /// Files that are being removed.
    begun: Vec<PathBuf>,
    has_thread: bool,
}

impl State {
    fn is_done(&self, folder: &Path) -> bool {
        let waits = self
            .waiting
            .iter()
            .any(|order| order.path.starts_with(folder));
        !waits && !self.begun.iter().any(|path| path.starts_with(folder))
    }
}

/// The files that all engines of the process have to remove.
struct Removals {
    state: Mutex<State>,
    ordered: Condvar,
    /// Changes whenever files were removed.
    removed: watch::Sender<()>,
}

static REMOVALS: LazyLock<Removals> = LazyLock::new(|| Removals {
    state: Mutex::default(),
    ordered: Condvar::new(),
    removed: watch::Sender::new(()),
});

/// Files whose removal has begun.
struct Begun(Vec<Order>);

impl Begun {
    fn new(orders: Vec<Order>, state: &mut State) -> Self {
        let paths = orders.iter().map(|order| order.path.clone());
        state.begun.extend(paths);
        Self(orders)
    }

    fn execute(&self) {
        for Order { path, scope } in &self.0 {
            let _inside = scope.clone().map(Scope::enter);
            remove(path);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut state = REMOVALS.state.lock();
        for order in &self.0 {
            let at = state.begun.iter().position(|path| *path == order.path);
            if let Some(at) = at {
                state.begun.swap_remove(at);
            }
        }
        drop(state);
        REMOVALS.removed.send_replace(());
    }
}

/// Removes a file that its storage does not have any more, soon.
pub(crate) fn remove_later(path: PathBuf) {
    let scope = io_trace::current();
    let mut state = REMOVALS.state.lock();
    state.waiting.push_back(Order { path, scope });
    if !state.has_thread {
        // Without one the next order tries again, and who waits for the removal removes.
        let thread = thread::Builder::new().name("removals".to_owned());
        state.has_thread = thread.spawn(work).is_ok();
    }
    drop(state);
    REMOVALS.ordered.notify_one();
}

/// Waits until the files in a folder are removed of which this was said before.
pub(crate) async fn done(folder: &Path) {
    let mut removed = REMOVALS.removed.subscribe();
    loop {
        removed.mark_unchanged();
        let own = {
            let mut state = REMOVALS.state.lock();
            if state.is_done(folder) {
                return;
            }
            let (own, others) = (state.waiting.drain(..))
                .partition::<Vec<_>, _>(|order| order.path.starts_with(folder));
            state.waiting = others.into();
            Begun::new(own, &mut state)
        };
        if own.0.is_empty() {
            drop(own);
            // The sender is never dropped.
            let _ = removed.changed().await;
        } else {
            // A panic in there is logged by the runtime, and what it left is removed by the start.
            let _ = tokio::task::spawn_blocking(move || own.execute()).await;
        }
    }
}

fn work() {
    loop {
        let begun = {
            let mut state = REMOVALS.state.lock();
            loop {
                if let Some(order) = state.waiting.pop_front() {
                    break Begun::new(vec![order], &mut state);
                }
                REMOVALS.ordered.wait(&mut state);
            }
        };
        begun.execute();
    }
}

fn remove(path: &Path) {
    if let Err(error) = remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(
            %error, path = %path.display(),
            "a file that was replaced cannot be removed; the next start removes it"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        time::Duration,
    };

    use super::*;
    use crate::{io::faulty::FaultPlan, tree::FilePin};

    /// A file that takes long to remove holds up nobody but those who wait for its removal.
    #[tokio::test]
    async fn the_last_reader_does_not_wait_for_the_removal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("replaced");
        std::fs::write(&file, b"x").unwrap();
        let plan = Arc::<FaultPlan>::default();
        plan.cover(folder.path());
        plan.halt_after(0);
        let pin = FilePin::default();
        pin.replace(vec![file.clone()]);
        let (dropped, was_dropped) = mpsc::sync_channel(1);
        thread::spawn(move || {
            drop(pin);
            dropped.send(()).unwrap();
        });
        let in_time = was_dropped.recv_timeout(Duration::from_secs(10));
        let waiting = tokio::time::timeout(Duration::from_millis(50), done(folder.path()));
        assert!(waiting.await.is_err() && file.exists(), "it is halted");
        others_do_not_wait(folder.path()).await;
        plan.resume();
        in_time.expect("the reader ends");
        done(folder.path()).await;
        assert!(!file.exists());
        let names = std::fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 0, "nothing is left");
    }

    /// While a removal in `halted` takes long, thousands of others are ordered at once, and those
    /// of another folder are done.
    async fn others_do_not_wait(halted: &Path) {
        let other = tempfile::tempdir().unwrap();
        let in_time = tokio::time::timeout(Duration::from_secs(10), async {
            done(other.path()).await;
            for at in 0..5000 {
                let path = halted.join(at.to_string());
                std::fs::write(&path, b"").unwrap();
                remove_later(path);
            }
            let file = other.path().join("replaced");
            std::fs::write(&file, b"x").unwrap();
            remove_later(file.clone());
            done(other.path()).await;
            assert!(!file.exists());
        });
        in_time.await.expect("nobody waits for another folder");
    }
}
