//! Removes files that were replaced, on a thread of its own.
//!
//! The last reader of such a file may be a task that serves requests, and the removal of a large
//! file takes as long as the file system needs to free its blocks. So a reader only says that the
//! file can go.

use std::{
    io,
    path::PathBuf,
    sync::{
        OnceLock,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use io_trace::Scope;
use tokio::sync::oneshot;

use crate::io::remove_file;

/// What the thread does, in this order.
#[derive(Debug)]
enum Order {
    Remove(PathBuf, Option<Scope>),
    /// Everything before this was done.
    Report(oneshot::Sender<()>),
}

/// To the thread, which all engines of the process share; `None` when it cannot be started.
static ORDERS: OnceLock<Option<SyncSender<Order>>> = OnceLock::new();

/// Orders that may wait. Whoever has one more carries it out.
const ORDERS_MAX: usize = 4096;
/// Wait before a report is ordered again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Removes a file that its storage does not have any more, soon.
pub(crate) fn remove_later(path: PathBuf) {
    let orders = ORDERS.get_or_init(|| {
        let (sender, orders) = sync_channel(ORDERS_MAX);
        let thread = thread::Builder::new().name("removals".to_owned());
        thread.spawn(move || work(&orders)).ok().map(|_| sender)
    });
    let order = Order::Remove(path, io_trace::current());
    let unsent = match orders {
        Some(orders) => match orders.try_send(order) {
            Ok(()) => None,
            Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) => Some(order),
        },
        None => Some(order),
    };
    if let Some(order) = unsent {
        execute(order);
    }
}

/// Waits until the files are removed of which this was said before.
pub(crate) async fn done() {
    let Some(Some(orders)) = ORDERS.get() else {
        return;
    };
    let (report, reported) = oneshot::channel();
    let mut order = Order::Report(report);
    loop {
        match orders.try_send(order) {
            Ok(()) => break,
            Err(TrySendError::Full(unsent)) => order = unsent,
            // Since the thread has ended, files are removed at once.
            Err(TrySendError::Disconnected(_)) => return,
        }
        tokio::time::sleep(FULL_PAUSE).await;
    }
    // Without a report, the thread has ended.
    let _ = reported.await;
}

fn work(orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        execute(order);
    }
}

fn execute(order: Order) {
    match order {
        Order::Remove(path, scope) => {
            let _inside = scope.map(Scope::enter);
            remove(path);
        }
        Order::Report(report) => {
            // Who waited for it may have been cancelled.
            let _ = report.send(());
        }
    }
}

fn remove(path: PathBuf) {
    if let Err(error) = remove_file(&path)
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
    use std::sync::{Arc, mpsc};

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
        let removed = tokio::time::timeout(Duration::from_millis(50), done()).await;
        assert!(removed.is_err() && file.exists(), "the removal is halted");
        plan.resume();
        in_time.expect("the reader ends");
        done().await;
        assert!(!file.exists());
    }
}
