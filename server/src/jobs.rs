//! Long-running work that can be monitored and cancelled: verification, export, import, copy,
//! finalization.
//!
//! A job lives as long as its [`JobHandle`], which belongs to the code that does the work. Dropping
//! the handle without an outcome, as happens when a client disconnects, cancels the work. The
//! latest outcomes are retained for later requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use storage_core::{Progress, StorageError};
use storage_format::StorageId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::Caller;
use crate::clock;
use crate::metrics::Metrics;
use crate::problem::Problem;

/// Maximum number of running jobs: each may use a thread, open files and buffers.
const RUNNING_MAX: usize = 32;
/// Maximum number of ended jobs that are retained.
const ENDED_MAX: usize = 256;
/// `Retry-After` when too many jobs are running, in seconds.
const RETRY_SECONDS: u64 = 5;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKind {
    /// Verifies a storage.
    Verify,
    /// Exports a storage as a ZIP archive.
    Export,
    /// Imports a storage from a ZIP archive.
    Import,
    /// Copies packets of a storage into another.
    Copy,
    /// Finalizes a storage.
    Finalize,
    /// Makes a file of events.
    Events,
    /// Moves a storage to or from the object store, or verifies it there.
    Tier,
}

impl JobKind {
    fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Export => "export",
            Self::Import => "import",
            Self::Copy => "copy",
            Self::Finalize => "finalize",
            Self::Events => "events",
            Self::Tier => "tier",
        }
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum JobState {
    /// In progress.
    Running,
    /// Completed successfully.
    Done,
    /// Ended with a problem.
    Failed,
    /// Cancelled by a client, or because its client disconnected.
    Cancelled,
}

/// A job as the API shows it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct JobDocument {
    /// UUIDv7.
    pub(crate) id: String,
    kind: JobKind,
    state: JobState,
    /// The storage that is read, or that an import created.
    storage: Option<String>,
    /// Bytes processed so far.
    bytes_done: u64,
    /// Bytes to process; null if unknown.
    bytes_total: Option<u64>,
    /// RFC 3339.
    started: String,
    /// RFC 3339.
    ended: Option<String>,
    /// The response to the request, once DONE.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    /// `status`, `code` and `detail` of the problem, once FAILED.
    #[schema(value_type = Option<Object>)]
    problem: Option<Value>,
}

impl JobDocument {
    /// Whether it works on this storage.
    pub(crate) fn is_of(&self, storage: StorageId) -> bool {
        let own = self.storage.as_ref().and_then(|own| own.parse().ok());
        own == Some(storage)
    }
}

struct Job {
    document: JobDocument,
    storage: Option<StorageId>,
    progress: Arc<Progress>,
    cancel: watch::Sender<bool>,
}

impl Job {
    fn document(&self) -> JobDocument {
        let mut document = self.document.clone();
        document.bytes_done = self.progress.bytes_done.load(Ordering::Relaxed);
        document.bytes_total = match self.progress.bytes_total.load(Ordering::Relaxed) {
            0 => None,
            // A job may find more to do than it knew of.
            total => Some(total.max(document.bytes_done)),
        };
        document
    }

    fn cancel(&self) {
        self.progress.cancel();
        self.cancel.send_replace(true);
    }
}

#[derive(Default)]
struct Inner {
    running: BTreeMap<Uuid, Job>,
    ended: VecDeque<(Uuid, JobDocument)>,
    /// The server stops: no job starts any more.
    is_ending: bool,
}

/// All jobs of the server.
pub(crate) struct Jobs {
    inner: Mutex<Inner>,
    /// Work that no request waits for.
    tasks: Mutex<JoinSet<()>>,
    metrics: Arc<Metrics>,
}

/// A running job.
pub(crate) struct JobHandle {
    jobs: Arc<Jobs>,
    id: Uuid,
    kind: JobKind,
    progress: Arc<Progress>,
    cancelled: watch::Receiver<bool>,
    is_ended: bool,
}

impl Jobs {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            tasks: Mutex::default(),
            metrics,
        })
    }

    /// Starts a job.
    pub(crate) fn start(
        self: &Arc<Self>,
        kind: JobKind,
        storage: Option<StorageId>,
    ) -> Result<JobHandle, Problem> {
        let mut inner = self.inner.lock();
        if inner.is_ending {
            return Err(StorageError::Stopping.into());
        }
        if inner.running.len() >= RUNNING_MAX {
            return Err(
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "the server is busy")
                    .detail(format!("{RUNNING_MAX} jobs are already running"))
                    .cause("each of them reads or writes as fast as the disk allows")
                    .remedy("retry later; GET /api/v1/jobs lists the jobs, DELETE cancels one")
                    .retry_after(RETRY_SECONDS),
            );
        }
        let id = clock::new_id();
        let progress = Arc::<Progress>::default();
        let (cancel, cancelled) = watch::channel(false);
        let document = JobDocument {
            id: id.to_string(),
            kind,
            state: JobState::Running,
            storage: storage.map(|id| id.to_string()),
            bytes_done: 0,
            bytes_total: None,
            started: clock::now().to_string(),
            ended: None,
            result: None,
            problem: None,
        };
        let job = Job {
            document,
            storage,
            progress: Arc::clone(&progress),
            cancel,
        };
        inner.running.insert(id, job);
        self.metrics
            .jobs
            .running
            .with_label_values(&[kind.name()])
            .inc();
        Ok(JobHandle {
            jobs: Arc::clone(self),
            id,
            kind,
            progress,
            cancelled,
            is_ended: false,
        })
    }

    /// All retained jobs: running ones first, each group by start time.
    pub(crate) fn all(&self) -> Vec<JobDocument> {
        let inner = self.inner.lock();
        let running = inner.running.values().map(Job::document);
        let ended = inner.ended.iter().map(|(_, document)| document.clone());
        running.chain(ended).collect()
    }

    /// The storages of running jobs.
    pub(crate) fn storages(&self) -> Vec<StorageId> {
        let inner = self.inner.lock();
        let running = inner.running.values();
        running.filter_map(|job| job.storage).collect()
    }

    /// One job.
    pub(crate) fn get(&self, id: Uuid) -> Result<JobDocument, Problem> {
        let inner = self.inner.lock();
        let ended = || inner.ended.iter().find(|(of, _)| *of == id);
        let found = inner.running.get(&id).map(Job::document);
        let found = found.or_else(|| ended().map(|(_, document)| document.clone()));
        found.ok_or_else(not_found)
    }

    /// Whether a caller may know of a job: of any, or of one that works on a storage in its scope.
    /// Others look like jobs that do not exist.
    pub(crate) fn check_seen(&self, id: Uuid, caller: &Caller) -> Result<(), Problem> {
        let storage = self.get(id)?.storage;
        let storage = storage.and_then(|storage| storage.parse().ok());
        if storage.map_or(!caller.is_scoped(), |storage| caller.sees_storage(storage)) {
            Ok(())
        } else {
            Err(not_found())
        }
    }

    /// Requests cancellation of a job; a job that has ended is not changed.
    pub(crate) fn cancel(&self, id: Uuid) -> Result<JobDocument, Problem> {
        if let Some(job) = self.inner.lock().running.get(&id) {
            job.cancel();
        }
        self.get(id)
    }

    /// Runs `work` without a request that waits for it.
    pub(crate) fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Cancels verifications: a repair runs on without its client, but not without a server.
    pub(crate) fn cancel_verifications(&self) {
        let inner = self.inner.lock();
        let running = inner.running.values();
        let verify = running.filter(|job| job.document.kind == JobKind::Verify);
        verify.for_each(Job::cancel);
    }

    /// Cancels all running jobs, lets none start, and waits for those without a request.
    pub(crate) async fn end(&self) {
        {
            let mut inner = self.inner.lock();
            inner.is_ending = true;
            inner.running.values().for_each(Job::cancel);
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }

    fn ended(&self, id: Uuid, kind: JobKind, state: JobState, outcome: Outcome) {
        let mut inner = self.inner.lock();
        let Some(job) = inner.running.remove(&id) else {
            return;
        };
        let mut document = job.document();
        document.state = state;
        document.ended = Some(clock::now().to_string());
        document.storage = outcome.storage.or(document.storage);
        document.result = outcome.result;
        document.problem = outcome.problem;
        let bytes = document.bytes_done;
        inner.ended.push_back((id, document));
        while inner.ended.len() > ENDED_MAX {
            inner.ended.pop_front();
        }
        let (kind, state) = (kind.name(), state.name());
        self.metrics.jobs.running.with_label_values(&[kind]).dec();
        self.metrics
            .jobs
            .ended
            .with_label_values(&[kind, state])
            .inc();
        self.metrics
            .jobs
            .bytes
            .with_label_values(&[kind])
            .inc_by(bytes);
    }
}

impl JobState {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Default)]
struct Outcome {
    storage: Option<String>,
    result: Option<Value>,
    problem: Option<Value>,
}

impl JobHandle {
    /// Its id as text.
    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Its progress.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Completes when the job is cancelled.
    pub(crate) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled
            .wait_for(|is_cancelled| *is_cancelled)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Ends the job with the outcome of its request, and returns that outcome.
    pub(crate) fn end<T: Serialize>(
        mut self,
        storage: Option<String>,
        outcome: Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.is_ended = true;
        let (state, document) = match &outcome {
            Ok(result) => {
                let result = serde_json::to_value(result).ok();
                (
                    JobState::Done,
                    Outcome {
                        storage,
                        result,
                        problem: None,
                    },
                )
            }
            Err(problem) => {
                let is_cancelled = problem.code() == StorageError::Cancelled.code();
                let state = if is_cancelled {
                    JobState::Cancelled
                } else {
                    JobState::Failed
                };
                let problem = json!({
                    "status": problem.status().as_u16(),
                    "code": problem.code(),
                    "detail": problem.what(),
                });
                (
                    state,
                    Outcome {
                        problem: Some(problem),
                        ..Outcome::default()
                    },
                )
            }
        };
        self.jobs.ended(self.id, self.kind, state, document);
        outcome
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        if !self.is_ended {
            self.progress.cancel();
            let outcome = Outcome::default();
            self.jobs
                .ended(self.id, self.kind, JobState::Cancelled, outcome);
        }
    }
}

fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "job_not_found", "job not found")
        .cause("no job has this id, or it ended too long ago")
        .remedy("GET /api/v1/jobs lists all jobs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_limited_and_retained() {
        let jobs = Jobs::new(Arc::new(Metrics::default()));
        let running: Vec<_> = (0..RUNNING_MAX)
            .map(|_| jobs.start(JobKind::Verify, None).unwrap())
            .collect();
        let refused = jobs.start(JobKind::Import, None).err().unwrap();
        assert_eq!((refused.status().as_u16(), refused.code()), (429, "busy"));
        let ids: Vec<_> = running.iter().map(|job| job.id).collect();
        let mut running = running.into_iter();
        running
            .next()
            .unwrap()
            .end(None, Ok(json!({ "x": 1 })))
            .unwrap();
        let done = jobs.get(ids[0]).unwrap();
        assert_eq!(
            (done.state, done.result),
            (JobState::Done, Some(json!({ "x": 1 })))
        );
        let failed = Problem::new(StatusCode::CONFLICT, "storage_exists", "there");
        let failed = running.next().unwrap().end::<()>(None, Err(failed));
        assert!(failed.is_err());
        let failed = jobs.get(ids[1]).unwrap();
        assert_eq!(failed.state, JobState::Failed);
        assert_eq!(failed.problem.unwrap()["code"], "storage_exists");
        drop(running);
        assert_eq!(jobs.get(ids[2]).unwrap().state, JobState::Cancelled);
        for _ in 0..ENDED_MAX {
            drop(jobs.start(JobKind::Export, None).unwrap());
        }
        assert_eq!(jobs.all().len(), ENDED_MAX);
        assert_eq!(jobs.get(ids[0]).unwrap_err().code(), "job_not_found");
    }

    #[tokio::test]
    async fn none_starts_once_they_end() {
        let jobs = Jobs::new(Arc::new(Metrics::default()));
        let first = jobs.start(JobKind::Verify, None).unwrap();
        let (work, later) = (Arc::clone(&jobs), Arc::new(Mutex::new(None)));
        let seen = Arc::clone(&later);
        jobs.detach(async move {
            first.cancelled().await;
            drop(first);
            let started = work.start(JobKind::Events, None);
            *seen.lock() = started.err().map(|problem| problem.code().to_owned());
        });
        jobs.end().await;
        assert_eq!(later.lock().as_deref(), Some("stopping"));
    }

    #[tokio::test]
    async fn a_cancelled_job_notices_it() {
        let jobs = Jobs::new(Arc::new(Metrics::default()));
        let job = jobs.start(JobKind::Import, None).unwrap();
        assert_eq!(jobs.cancel(job.id).unwrap().state, JobState::Running);
        job.cancelled().await;
        assert!(job.progress().is_cancelled.load(Ordering::Relaxed));
        let id = job.id;
        let cancelled = Problem::from(StorageError::Cancelled);
        assert!(job.end::<()>(None, Err(cancelled)).is_err());
        assert_eq!(jobs.cancel(id).unwrap().state, JobState::Cancelled);
    }
}
