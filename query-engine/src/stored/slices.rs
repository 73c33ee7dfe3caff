//! The slices of a Chrome stream in all its leaves: they may begin in one leaf and end in another.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use chunk_index::ChromeUnpaired;
use trace_kinds::chrome::{Durations, OutsideDurations, Unpaired};

use super::StoredLeaf;
use super::frames::Frames;
use crate::open_sidecar::OpenSidecar;
use crate::slices::{durations_checksum, of_attachment};
use crate::{Cancel, ReadError};

/// A leaf of a stream, and its chunk index.
pub(super) type LeafOfStream = (StoredLeaf, Option<Arc<OpenSidecar>>);

/// The leaves of a stream, in order, and the durations of the slices between their packets. They
/// are found when the first is asked for.
pub(crate) struct StreamSlices {
    leaves: Vec<LeafOfStream>,
    /// Whether somebody still waits for the durations.
    cancel: OnceLock<Cancel>,
    found: OnceLock<Vec<Durations>>,
    /// What could not be read to find them, until somebody who asked is told.
    faults: Mutex<Vec<String>>,
    memory: Arc<SliceMemory>,
}

/// Memory for the durations of all streams of a query.
pub(super) struct SliceMemory {
    /// Bytes that are left. Who finds durations holds the lock, so only one stream is searched at a
    /// time: that takes far more memory than what is kept.
    left: Mutex<usize>,
}

impl SliceMemory {
    pub(super) fn new(bytes: usize) -> SliceMemory {
        SliceMemory {
            left: Mutex::new(bytes),
        }
    }
}

impl Default for SliceMemory {
    fn default() -> SliceMemory {
        SliceMemory::new(DURATION_BYTES_MAX)
    }
}

/// Memory for the durations of slices between packets, of all streams of a query: four streams with
/// as many slices as are remembered.
const DURATION_BYTES_MAX: usize = 96 << 20;

/// Faults of a stream that are told.
const FAULTS_MAX: usize = 16;

impl StreamSlices {
    pub(super) fn new(leaves: Vec<LeafOfStream>, memory: Arc<SliceMemory>) -> StreamSlices {
        StreamSlices {
            faults: Mutex::default(),
            memory,
            leaves,
            cancel: OnceLock::new(),
            found: OnceLock::new(),
        }
    }

    /// Ends the search for durations when a query is cancelled.
    pub(super) fn end_with(&self, cancel: &Cancel) {
        // The first query of a set is its only one.
        let _known = self.cancel.set(cancel.clone());
    }

    /// Whether slices begin in a leaf, according to its chunk index, that do not end in their
    /// packet.
    pub(super) fn has_begins(&self, number: usize) -> bool {
        let sidecar = self.leaves.get(number).and_then(|(_, open)| open.as_ref());
        let unpaired = sidecar.and_then(|sidecar| unpaired_of(sidecar));
        unpaired.is_some_and(|(unpaired, _)| unpaired.has_begins())
    }

    /// Whether the durations that the chunk index of a leaf was made with are still those of its
    /// slices: more of them may have ended since.
    pub(crate) fn is_current(self: &Arc<StreamSlices>, number: usize) -> bool {
        let Some((_, Some(sidecar))) = self.leaves.get(number) else {
            return true;
        };
        let Some((unpaired, indexed)) = unpaired_of(sidecar) else {
            return false;
        };
        let now = if unpaired.has_begins() {
            durations_checksum(&unpaired, Some(&self.of_leaf(number)))
        } else {
            durations_checksum(&unpaired, None)
        };
        now == indexed
    }

    /// The durations of the leaf with this number.
    pub(super) fn of_leaf(self: &Arc<StreamSlices>, number: usize) -> LeafSlices {
        LeafSlices {
            stream: Arc::clone(self),
            number,
            is_asked: AtomicBool::new(false),
        }
    }

    fn durations(&self) -> &[Durations] {
        self.found.get_or_init(|| self.find())
    }

    fn find(&self) -> Vec<Durations> {
        let left = self.memory.left.lock();
        let mut left = left.unwrap_or_else(PoisonError::into_inner);
        let found = self.pair();
        let bytes: usize = found.iter().map(Durations::memory).sum();
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                found
            }
            None => {
                let mut none = Unpaired::default();
                none.cut();
                none.durations(self.leaves.len())
            }
        }
    }

    /// The durations of the slices of all leaves.
    fn pair(&self) -> Vec<Durations> {
        let mut unpaired = Unpaired::default();
        for (number, (stored, sidecar)) in (0_u32..).zip(&self.leaves) {
            let mut from = 0;
            let indexed = sidecar.as_ref().and_then(|sidecar| {
                from = sidecar.index().identity().length;
                unpaired_of(sidecar)
            });
            match indexed {
                Some((indexed, _)) => unpaired.append(number, &indexed),
                None => from = 0,
            }
            // A leaf that cannot be read may be one that the window of the query rules out, so who
            // asks for durations gets a report of it.
            if let Err(error) = self.read(number, stored, from, &mut unpaired) {
                self.add_faults([error.to_string()]);
                break;
            }
        }
        unpaired.durations(self.leaves.len())
    }

    /// Adds the packets of a leaf that its index does not cover.
    fn read(
        &self,
        number: u32,
        stored: &StoredLeaf,
        from: u64,
        unpaired: &mut Unpaired,
    ) -> Result<(), ReadError> {
        let mut frames = Frames::new(&stored.leaf, &*stored.data).skipping_damage();
        let runs = stored.leaf.runs.iter();
        let runs = runs.map(|run| run.start.max(from)..run.end);
        for run in runs.filter(|run| run.start < run.end) {
            let _all = frames.read_run(run, &mut |_, offset, packet| {
                unpaired.add_packet(number, offset, packet);
                self.cancel.get().map_or(Ok(()), Cancel::check)?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.add_faults(frames.into_damage().faults);
        Ok(())
    }

    fn add_faults(&self, new: impl IntoIterator<Item = String>) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let free = FAULTS_MAX.saturating_sub(faults.len());
        faults.extend(new.into_iter().take(free));
    }
}

fn unpaired_of(sidecar: &OpenSidecar) -> Option<(Unpaired, u32)> {
    let bytes = sidecar.undamaged_attachment(ChromeUnpaired::NAME).ok()?;
    of_attachment(&bytes?)
}

/// The durations of one leaf.
pub(crate) struct LeafSlices {
    stream: Arc<StreamSlices>,
    number: usize,
    /// Whether a duration was asked for: otherwise the result does not depend on them.
    is_asked: AtomicBool,
}

impl fmt::Debug for LeafSlices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafSlices")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl OutsideDurations for LeafSlices {
    fn get(&self, position: u64, offset: u64) -> Option<i64> {
        self.is_asked.store(true, Ordering::Relaxed);
        let durations = self.stream.durations().get(self.number)?;
        durations.get(position, offset)
    }

    fn unpaired(&self, positions: &Range<u64>) -> u64 {
        // To find out that there are none, no other leaf is read.
        if !self.stream.has_begins(self.number) {
            return 0;
        }
        self.is_asked.store(true, Ordering::Relaxed);
        let durations = self.stream.durations().get(self.number);
        durations.map_or(0, |durations| durations.unpaired(positions))
    }

    fn is_cut(&self) -> bool {
        let durations = self.stream.found.get();
        durations.is_some_and(|all| all.iter().any(OutsideDurations::is_cut))
    }

    fn is_disordered(&self) -> bool {
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        let durations = self.stream.found.get().filter(|_| is_asked);
        durations.is_some_and(|all| all.iter().any(OutsideDurations::is_disordered))
    }

    fn faults(&self) -> Vec<String> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let faults = self.stream.faults.lock();
        std::mem::take(&mut *faults.unwrap_or_else(PoisonError::into_inner))
    }
}
