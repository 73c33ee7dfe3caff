//! Who waits for files of events, and the turns in which they are made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus::IntGauge;
use storage_core::StorageError;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::Key;
use crate::connection::Stage;
use crate::jobs::Jobs;
use crate::problem::Problem;

/// Files that are made or wait for their turn.
const FILES_MAX: usize = 17;
/// `Retry-After` when there are more of them, in seconds.
const RETRY_SECONDS: u64 = 10;

/// What is known of a file that is being made: nothing, until it was.
pub(super) type Outcome = watch::Receiver<Option<Result<(), Problem>>>;
type Told = Arc<watch::Sender<Option<Result<(), Problem>>>>;

/// The files that are being made, and those that wait for that.
pub(super) struct Queue {
    files: Mutex<HashMap<Key, Told>>,
    /// One file is made at a time: it takes all threads of a query.
    turn: AsyncMutex<()>,
    stage: watch::Receiver<Stage>,
    length: IntGauge,
}

impl Queue {
    pub(super) fn new(stage: watch::Receiver<Stage>, length: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            files: Mutex::default(),
            turn: AsyncMutex::default(),
            stage,
            length,
        })
    }

    /// Waits with others for a file. The first one brings the work, which runs as a task of `jobs`
    /// once it has its turn; then it ends without those who wait. One that nobody waits for any
    /// more before it has its turn leaves the queue, as all do when the server stops.
    ///
    /// # Errors
    /// When too many files are waited for.
    pub(super) fn join<Work>(
        self: &Arc<Self>,
        jobs: &Jobs,
        key: Key,
        work: impl FnOnce() -> Work,
    ) -> Result<Outcome, Problem>
    where
        Work: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        let mut files = self.files.lock();
        let count = files.len();
        let told = match files.entry(key) {
            Entry::Occupied(file) => return Ok(file.get().subscribe()),
            Entry::Vacant(_) if count >= FILES_MAX => return Err(busy()),
            Entry::Vacant(place) => Arc::clone(place.insert(Arc::new(watch::Sender::new(None)))),
        };
        self.length.inc();
        let outcome = told.subscribe();
        let file = InQueue {
            queue: Arc::clone(self),
            key,
            told,
        };
        let work = work();
        jobs.detach(async move { file.run(work).await });
        Ok(outcome)
    }

    async fn draining(&self) {
        // Without a sender, the server has shut down.
        let mut stage = self.stage.clone();
        drop(stage.wait_for(|stage| *stage > Stage::Running).await);
    }

    /// Takes a file out. Who comes now finds it on disk, or lets it be made again.
    fn leave(&self, key: &Key) {
        if self.files.lock().remove(key).is_some() {
            self.length.dec();
        }
    }
}

/// A file in the queue. It leaves it in any case: also when making it panics.
struct InQueue {
    queue: Arc<Queue>,
    key: Key,
    told: Told,
}

impl InQueue {
    async fn run(self, work: impl Future<Output = Result<(), Problem>>) {
        let _turn = tokio::select! {
            biased;
            () = self.queue.draining() => return self.end(Err(StorageError::Stopping.into())),
            () = self.abandoned() => return,
            turn = self.queue.turn.lock() => turn,
        };
        let made = work.await;
        self.end(made);
    }

    /// Waits until nobody waits for the file, and takes it out of the queue.
    async fn abandoned(&self) {
        loop {
            self.told.closed().await;
            let mut files = self.queue.files.lock();
            // Somebody may have come since.
            if self.told.receiver_count() == 0 {
                files.remove(&self.key);
                self.queue.length.dec();
                return;
            }
        }
    }

    fn end(&self, made: Result<(), Problem>) {
        self.queue.leave(&self.key);
        self.told.send_replace(Some(made));
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        // The task may have ended; then another one may have the same file.
        let is_own = |told: &Told| Arc::ptr_eq(told, &self.told);
        let is_left = self.queue.files.lock().get(&self.key).is_some_and(is_own);
        if is_left {
            self.end(Err(panicked()));
        }
    }
}

fn busy() -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "the server is busy")
        .detail(format!(
            "{FILES_MAX} files of events are being made or waited for"
        ))
        .cause("they are made one after another, as fast as the disk and the processors allow")
        .remedy("retry later; GET /api/v1/jobs shows the one that is being made, DELETE cancels it")
        .retry_after(RETRY_SECONDS)
}

fn panicked() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal_error",
        "internal error",
    )
    .cause("making the file of events panicked; the log has the message")
    .remedy("request it again; report this with the log of the server if it happens again")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use storage_format::{Kind, StorageId};
    use tokio::sync::Notify;

    use super::*;
    use crate::metrics::Metrics;

    struct Bench {
        queue: Arc<Queue>,
        jobs: Arc<Jobs>,
        stage: watch::Sender<Stage>,
        done: Arc<AtomicUsize>,
        go_on: Arc<Notify>,
    }

    impl Bench {
        fn new() -> Self {
            let metrics = Arc::new(Metrics::default());
            let (stage, seen) = watch::channel(Stage::Running);
            Self {
                queue: Queue::new(seen, metrics.queries.event_files_waiting.clone()),
                jobs: Jobs::new(metrics),
                stage,
                done: Arc::default(),
                go_on: Arc::default(),
            }
        }

        fn key(number: usize) -> Key {
            let millis = u64::try_from(number).unwrap();
            (StorageId::new(millis, [7; 10]), Kind::Otlp)
        }

        /// Asks for a file whose work waits to be told to go on.
        fn ask(&self, number: usize) -> Result<Outcome, Problem> {
            let (done, go_on) = (Arc::clone(&self.done), Arc::clone(&self.go_on));
            self.queue
                .join(&self.jobs, Self::key(number), || async move {
                    go_on.notified().await;
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
        }

        async fn until_left(&self, count: usize) {
            while self.queue.files.lock().len() > count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(self.queue.length.get(), i64::try_from(count).unwrap());
        }
    }

    async fn outcome(mut outcome: Outcome) -> Result<(), Problem> {
        let told = tokio::time::timeout(Duration::from_secs(20), outcome.wait_for(Option::is_some));
        told.await.unwrap().unwrap().clone().unwrap()
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_shared() {
        let bench = Bench::new();
        let asked: Vec<_> = (0..FILES_MAX).map(|n| bench.ask(n).unwrap()).collect();
        let refused = bench.ask(FILES_MAX).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.code()), (429, "busy"));
        let shared = bench.ask(3).unwrap();
        for each in asked {
            bench.go_on.notify_one();
            outcome(each).await.unwrap();
        }
        outcome(shared).await.unwrap();
        bench.until_left(0).await;
        assert_eq!(bench.done.load(Ordering::Relaxed), FILES_MAX);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_leaves_the_queue_unless_it_is_being_made() {
        let bench = Bench::new();
        let first = bench.ask(0).unwrap();
        tokio::task::yield_now().await;
        let (second, third) = (bench.ask(1).unwrap(), bench.ask(2).unwrap());
        let also_third = bench.ask(2).unwrap();
        drop((first, second, third));
        bench.until_left(2).await;
        bench.go_on.notify_one();
        bench.until_left(1).await;
        bench.go_on.notify_one();
        outcome(also_third).await.unwrap();
        assert_eq!(bench.done.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn none_is_begun_once_the_server_stops() {
        let bench = Bench::new();
        let asked: Vec<_> = (0..3).map(|n| bench.ask(n).unwrap()).collect();
        tokio::task::yield_now().await;
        bench.stage.send_replace(Stage::Draining);
        let mut asked = asked.into_iter();
        let first = asked.next().unwrap();
        for each in asked {
            assert_eq!(outcome(each).await.unwrap_err().code(), "stopping");
        }
        bench.go_on.notify_one();
        outcome(first).await.unwrap();
        bench.jobs.end().await;
        assert_eq!(bench.done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_panic_is_told_and_the_file_can_be_made_again() {
        let bench = Bench::new();
        let panics = || async { panic!("as intended by the test") };
        let panicked = bench
            .queue
            .join(&bench.jobs, Bench::key(0), panics)
            .unwrap();
        assert_eq!(
            outcome(panicked).await.unwrap_err().code(),
            "internal_error"
        );
        bench.go_on.notify_one();
        outcome(bench.ask(0).unwrap()).await.unwrap();
    }
}
