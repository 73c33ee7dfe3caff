//! Arranges full files of the log in the background.

use std::{collections::BTreeSet, path::Path, pin::Pin, sync::Arc, time::Duration};

use io_trace::{Cause, Scope};
use storage_format::{
    DataFileId, FormatError,
    paths::FileName,
    storage_file::{StorageFile, StorageState},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep_until},
};

use super::{Boxed, Services, Writer};
use crate::{
    Progress, StorageError,
    arranging::{Candidate, FullFile, LeafMaps, Planned},
    progress::{CancelledOnDrop, Pace},
    state::accepts_packets,
    storage::Storage,
    traced::on_thread,
};

/// Delay of the next attempt after one failed; each failure doubles it.
const RETRY_AFTER: Duration = if cfg!(test) {
    Duration::from_millis(5)
} else {
    Duration::from_secs(10)
};
/// Longest delay, as a power of two of the first.
const RETRY_DOUBLED_MAX: u32 = 8;
/// A file of at least this part of the largest size is full: 1/2. Smaller ones, after which the
/// server was started again, are arranged when the storage is finalized.
const FULL_DIVISOR: u64 = 2;

/// How arranging a file ended.
pub(super) enum FileArranged {
    /// The storage file names the arranged file.
    Done(FullFile),
    /// It does not pay: it stays as it is.
    Kept,
    /// It cannot be arranged yet.
    Later,
    /// The file is damaged: it stays as it is.
    Damaged(StorageError),
    /// It was cancelled, or failed; nothing remains of it.
    Undone(StorageError),
    /// It is not known whether the storage file on the disk names the arranged file. All files stay
    /// until the next start.
    Unknown(StorageError),
}

pub(super) type Arranging = (DataFileId, FileArranged);

/// Waits for the file that is being arranged; forever if there is none.
pub(super) async fn wait(arranging: &mut Option<Boxed<Arranging>>) -> Arranging {
    match arranging {
        Some(arranged) => arranged.await,
        None => std::future::pending().await,
    }
}

/// Storages arrange one file each in turn.
#[derive(Default)]
enum Turn {
    #[default]
    Unwanted,
    Waiting(Boxed<Option<OwnedSemaphorePermit>>),
    Here(OwnedSemaphorePermit),
}

impl Turn {
    /// Waits until it is here; forever if nobody wants it.
    async fn comes(&mut self) {
        match self {
            Self::Waiting(turn) => *self = turn.await.map_or(Self::Unwanted, Self::Here),
            Self::Unwanted | Self::Here(_) => std::future::pending().await,
        }
    }

    /// Takes it if it is here, and wants it otherwise.
    fn take(&mut self, turns: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        match std::mem::take(self) {
            Self::Here(turn) => return Some(turn),
            waiting @ Self::Waiting(_) => *self = waiting,
            Self::Unwanted => {
                let turn = Arc::clone(turns).acquire_owned();
                *self = Self::Waiting(Box::pin(async move { turn.await.ok() }));
            }
        }
        None
    }
}

/// When full files are arranged.
pub(super) struct ArrangeTimes {
    /// Whether there may be a file to arrange.
    is_open: bool,
    failures: u32,
    retry: Option<Pin<Box<Sleep>>>,
    turn: Turn,
    progress: CancelledOnDrop,
    /// Files that stay as they are.
    kept: BTreeSet<DataFileId>,
    /// No file is arranged before the next start.
    is_over: bool,
    /// Whether it is the turn of a file, and not of a merge of index parts.
    pub(super) is_turn_of_file: bool,
}

impl Default for ArrangeTimes {
    fn default() -> Self {
        Self {
            is_open: true,
            failures: 0,
            retry: None,
            turn: Turn::default(),
            progress: CancelledOnDrop::default(),
            kept: BTreeSet::new(),
            is_over: false,
            is_turn_of_file: true,
        }
    }
}

impl ArrangeTimes {
    /// Waits until an attempt is due.
    pub(super) async fn due(&mut self) {
        match &mut self.retry {
            Some(retry) => {
                retry.await;
                self.retry = None;
            }
            None => {
                self.turn.comes().await;
                self.is_open = true;
            }
        }
    }

    /// Notes that the parts of the storage changed.
    pub(super) fn parts_changed(&mut self) {
        self.is_open = true;
    }

    fn try_again(&mut self, delay: Duration) {
        self.is_open = true;
        let at = Instant::now().checked_add(delay);
        self.retry = at.map(|at| Box::pin(sleep_until(at)));
    }

    fn failed(&mut self) {
        let delay = RETRY_AFTER.saturating_mul(1 << self.failures.min(RETRY_DOUBLED_MAX));
        self.failures = self.failures.saturating_add(1);
        self.try_again(delay);
    }
}

impl Writer {
    /// Starts a merge of index parts or the arranging of a file; they take turns, because both
    /// replace parts.
    pub(super) fn tidy_when_due(&mut self) {
        if self.arrange_times.is_turn_of_file {
            self.arrange_when_due();
            self.merge_when_due();
        } else {
            self.merge_when_due();
            self.arrange_when_due();
        }
    }

    /// Starts to arrange a full file that the index parts describe.
    fn arrange_when_due(&mut self) {
        let config = &self.services.config;
        let rate = config.full_file_arranging_bytes_per_second_max;
        let bytes_min = config.data_file_bytes_max / FULL_DIVISOR;
        let times = &mut self.arrange_times;
        // A cut file has to stay as the repair file says it is.
        let is_repaired = !self.storage.repairs().repairs.is_empty();
        // A finalization that a crash interrupted continues where it was.
        let is_written = accepts_packets(self.storage.state()) && !self.storage.poison.is_set();
        if rate == 0 || times.is_over || is_repaired || !is_written {
            times.turn = Turn::Unwanted;
            return;
        }
        let is_busy = self.arranging.is_some() || self.merging.is_some();
        if !times.is_open || times.retry.is_some() || is_busy {
            return;
        }
        times.is_open = false;
        let is_wanted = |file| !times.kept.contains(&file);
        let Some(candidate) = candidate_of(&self.storage, bytes_min, false, is_wanted) else {
            times.turn = Turn::Unwanted;
            return;
        };
        let Some(turn) = times.turn.take(&self.services.arrangings) else {
            return;
        };
        let progress = Arc::<Progress>::default();
        times.progress = CancelledOnDrop(Arc::clone(&progress));
        let pace = Pace::new(&progress, rate);
        let (storage, services) = (Arc::clone(&self.storage), self.services.clone());
        let work = async move {
            let _turn = turn;
            (
                candidate.file,
                arrange(&storage, &services, candidate, pace).await,
            )
        };
        let scope = Scope::within(&self.services.tracer, Cause::Flush);
        self.arranging = Some(Box::pin(scope.around(work)));
    }

    /// Lets the arranging of a file end soon; its outcome still comes.
    pub(super) fn cancel_arranging(&mut self) {
        self.arrange_times.turn = Turn::Unwanted;
        self.arrange_times.progress.0.cancel();
    }

    pub(super) fn on_arranged(&mut self, (file, arranged): Arranging) {
        self.arranging = None;
        let times = &mut self.arrange_times;
        times.is_open = true;
        times.is_turn_of_file = false;
        match arranged {
            FileArranged::Done(full) => {
                times.failures = 0;
                self.replace_file(full);
            }
            FileArranged::Kept | FileArranged::Damaged(StorageError::Damaged { .. }) => {
                times.kept.insert(file);
            }
            FileArranged::Later => times.try_again(RETRY_AFTER),
            FileArranged::Undone(StorageError::Cancelled) => {}
            // A disk that refuses to read may do so only for a while.
            FileArranged::Undone(error) | FileArranged::Damaged(error) => {
                self.services.counters.file_arranging_failures.add(1);
                times.failed();
                tracing::warn!(
                    %error, storage = %self.storage.id, %file,
                    "a full data file cannot be arranged; it is arranged later"
                );
            }
            FileArranged::Unknown(error) => {
                self.services.counters.file_arranging_failures.add(1);
                times.is_over = true;
                tracing::warn!(
                    %error, storage = %self.storage.id, %file,
                    "a data file was arranged, but the storage file could not be written; no more \
                     files of the storage are arranged before the next start"
                );
            }
        }
    }

    /// Makes an arranged file, which the storage file names, one of the storage.
    fn replace_file(&mut self, full: FullFile) {
        let path = self.storage.path(&FileName::Data(full.file));
        let replaced = match &mut *self.storage.tree.write() {
            Some(tree) => tree.replace_file(full.file, full.by, &full.parts, path),
            None => return,
        };
        self.storage.forget_damage_of_others();
        self.services.counters.files_arranged.add(1);
        self.merge_times.parts_changed();
        tracing::info!(
            storage = %self.storage.id, file = %full.file, by = %full.by.0,
            "a full data file was arranged"
        );
        replaced.0.iter().for_each(|part| part.replace());
    }

    /// Arranges what is left of a storage of which files were arranged while it was open, file by
    /// file; its log has ended.
    ///
    /// # Errors
    /// When it is cancelled, or a file is damaged.
    pub(super) async fn arrange_rest(
        &mut self,
        progress: &Arc<Progress>,
    ) -> Result<(), StorageError> {
        let rate = self.services.config.arranging_bytes_per_second_max;
        let mut kept = BTreeSet::new();
        progress.begin(self.unarranged_bytes());
        loop {
            let is_wanted = |file| !kept.contains(&file);
            let Some(candidate) = candidate_of(&self.storage, 0, true, is_wanted) else {
                return Ok(());
            };
            let file = candidate.file;
            let pace = Pace::new(progress, rate);
            match arrange(&self.storage, &self.services, candidate, pace).await {
                FileArranged::Done(full) => self.replace_file(full),
                FileArranged::Kept | FileArranged::Later => drop(kept.insert(file)),
                FileArranged::Damaged(error)
                | FileArranged::Undone(error @ StorageError::Cancelled) => return Err(error),
                FileArranged::Undone(error) | FileArranged::Unknown(error) => {
                    tracing::warn!(
                        %error, storage = %self.storage.id, %file,
                        "a data file is not arranged by stream; the storage is finalized as it is"
                    );
                    return Ok(());
                }
            }
        }
    }

    fn unarranged_bytes(&self) -> u64 {
        let tree = self.storage.tree.read();
        let files = tree.iter().flat_map(|tree| tree.files());
        let log = files.filter(|(file, _)| file.is_of_log());
        log.fold(0, |sum: u64, (_, tail)| sum.saturating_add(tail.length))
    }
}

fn candidate_of(
    storage: &Arc<Storage>,
    bytes_min: u64,
    has_ended: bool,
    is_wanted: impl Fn(DataFileId) -> bool,
) -> Option<Candidate> {
    let of = Arc::clone(storage);
    let maps: LeafMaps = Arc::new(move |leaf, range| of.leaf_map(leaf, &range));
    let tree = storage.tree.read();
    let folder: &Path = &storage.folder;
    Candidate::of(
        tree.as_ref()?,
        (folder, maps),
        bytes_min,
        has_ended,
        is_wanted,
    )
}

/// Arranges a file, and names the new one in the storage file.
async fn arrange(
    storage: &Arc<Storage>,
    services: &Services,
    candidate: Candidate,
    pace: Pace,
) -> FileArranged {
    let space = Arc::clone(&services.space);
    let file = candidate.file;
    let make = move || match candidate.plan()? {
        Planned::Pays(plan) => {
            space.check_room(plan.bytes())?;
            plan.run(pace).map(FileArranged::Done)
        }
        Planned::Kept => Ok(FileArranged::Kept),
        Planned::Uncut => Ok(FileArranged::Later),
    };
    let made = on_thread(io_trace::current(), make).await;
    let full = match made.unwrap_or(Err(StorageError::Stopping)) {
        Ok(FileArranged::Done(full)) => full,
        Ok(outcome) => return outcome,
        Err(error) => {
            if let StorageError::Damaged { path, source } = &error {
                note_damage(storage, file, path, source);
                if !error.is_damage() {
                    return FileArranged::Kept;
                }
            }
            return if error.is_damage() {
                FileArranged::Damaged(error)
            } else {
                FileArranged::Undone(error)
            };
        }
    };
    // A task of its own: the writer changes the storage file, too, and must not wait for a change
    // that goes on only when the writer waits for it.
    let naming = name_file(Arc::clone(storage), services.clone(), full);
    let task = match io_trace::current() {
        Some(scope) => tokio::spawn(scope.around(naming)),
        None => tokio::spawn(naming),
    };
    let named = task.await;
    named.unwrap_or(FileArranged::Unknown(StorageError::Stopping))
}

/// Remembers damage that was found while `file` was read: in its leaves, in the next file, or in an
/// index part.
fn note_damage(storage: &Storage, file: DataFileId, path: &Path, error: &FormatError) {
    tracing::error!(
        %error, storage = %storage.id, path = %path.display(),
        "a file is damaged, so that a full data file is not arranged; verify the storage"
    );
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_file = name.parse::<FileName>().is_ok();
    let (name, offset) = if is_file {
        (name.into_owned(), error.offset)
    } else {
        // Of a leaf, the offset is another one.
        (FileName::Data(file).to_string(), 0)
    };
    let what = format!("{}: {error}", path.display());
    storage.checked.scrubbed.add(&name, offset, what);
}

/// Names an arranged file in the storage file, or removes it.
async fn name_file(storage: Arc<Storage>, services: Services, full: FullFile) -> FileArranged {
    let mut is_tried = false;
    let name = |file: &mut StorageFile| {
        let is_written = accepts_packets(file.state) || file.state == StorageState::Finalizing;
        if !is_written {
            return Err(storage.wrong_state("arranging", "OPEN"));
        }
        file.files.retain(|listed| listed.name != full.entry.name);
        if !crate::sabotaged!("skip-naming") {
            file.files.push(full.entry.clone());
        }
        file.files.sort_by(|a, b| a.name.cmp(&b.name));
        is_tried = true;
        Ok(())
    };
    let Services {
        io_thread, catalog, ..
    } = &services;
    let Err(error) = storage.change(io_thread, catalog, name).await else {
        crate::fault_point!(async "arrange.file_named");
        return FileArranged::Done(full);
    };
    // Once the storage file is as it was, nobody has read the name.
    let is_undone = !is_tried || storage.change(io_thread, catalog, |_| Ok(())).await.is_ok();
    if !is_undone {
        return FileArranged::Unknown(error);
    }
    let _ = on_thread(io_trace::current(), move || full.remove()).await;
    FileArranged::Undone(error)
}
