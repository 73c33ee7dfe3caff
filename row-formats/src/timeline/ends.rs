//! The ends of slices that begin and end in two records of a Chrome trace.
//!
//! The begin has the duration and becomes a slice, so its end is no event of its own: as an instant
//! it would be beside the slice once more. An end whose begin is not in the result stays.

use std::collections::BTreeMap;

use query_language::Value;

use super::tracks::TrackKey;

/// What a record of a Chrome trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Begin,
    End,
    AsyncBegin,
    AsyncEnd,
    Other,
}

impl Phase {
    /// From the value of `ph`. Traces of other kinds have none.
    pub(super) fn of(value: Option<Value<'_>>) -> Phase {
        match value {
            Some(Value::Str(b"B")) => Phase::Begin,
            Some(Value::Str(b"E")) => Phase::End,
            Some(Value::Str(b"b" | b"S")) => Phase::AsyncBegin,
            Some(Value::Str(b"e" | b"F")) => Phase::AsyncEnd,
            _ => Phase::Other,
        }
    }
}

/// What an end has in common with its slice: the time, the thread (an asynchronous slice may end in
/// another one of its process) and whether it is asynchronous.
type Place = (TrackKey, bool);

/// The ends of the slices that are open.
#[derive(Debug, Default)]
pub(super) struct SliceEnds {
    /// By their time, how many there are.
    ends: BTreeMap<i64, Vec<(Place, u32)>>,
}

impl SliceEnds {
    /// Drops the ends before `start`, which no event has any more.
    pub(super) fn drop_before(&mut self, start: i64) {
        while let Some(first) = self.ends.first_entry()
            && *first.key() < start
        {
            first.remove();
        }
    }

    /// A record that became a slice until `end`.
    pub(super) fn slice(&mut self, phase: Phase, track: &TrackKey, end: i64) {
        let place = match phase {
            Phase::Begin => (track.clone(), false),
            Phase::AsyncBegin => (track.process(), true),
            Phase::End | Phase::AsyncEnd | Phase::Other => return,
        };
        let at = self.ends.entry(end).or_default();
        match at.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => at.push((place, 1)),
        }
    }

    /// Whether a record at `at` ends a slice. It is then known no longer.
    pub(super) fn take(&mut self, phase: Phase, track: &TrackKey, at: i64) -> bool {
        let place = match phase {
            Phase::End => (track.clone(), false),
            Phase::AsyncEnd => (track.process(), true),
            Phase::Begin | Phase::AsyncBegin | Phase::Other => return false,
        };
        let Some(ends) = self.ends.get_mut(&at) else {
            return false;
        };
        let known = ends.iter_mut().find(|(known, _)| *known == place);
        match known {
            Some((_, count)) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}
