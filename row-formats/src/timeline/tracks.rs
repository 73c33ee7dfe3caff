//! Tracks: slices on one track are nested or follow each other; they never overlap partly.

use std::collections::HashMap;
use std::fmt;

use query_language::{Number, Value};

use super::lanes::Lanes;

/// Tracks of one trace.
pub(super) const TRACKS_MAX: usize = 1 << 16;

/// A track, which is described before its first event.
#[derive(Debug)]
pub(crate) struct Track {
    /// Unique in its trace, from 1.
    pub(crate) id: u64,
    /// The track of its process.
    pub(crate) parent: Option<u64>,
    /// What it is.
    pub(crate) place: Place,
}

/// What a track is, as far as readers can identify it.
#[derive(Debug)]
pub(crate) enum Place {
    /// A thread of a process that no other agent has.
    Thread {
        pid: i32,
        tid: i64,
        /// What the trace has instead of the number, which is then one that no other thread has.
        text: Option<Box<str>>,
    },
    /// A process that no other agent has, under the name of its agent.
    Process {
        pid: i32,
        agent: Box<str>,
        /// As for threads.
        text: Option<Box<str>>,
    },
    /// Anything else, under a name for people.
    Named(String),
}

/// What identifies a process or a thread. Chrome traces may have text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    /// `None` for no value, and for text that is empty.
    fn of(value: Option<Value<'_>>) -> Option<Id> {
        let value = value?;
        let number = value.as_number().map(Number::normalize);
        if let Some(Number::Int(number)) = number
            && let Ok(number) = i64::try_from(number)
        {
            return Some(Id::Number(number));
        }
        let mut text = Vec::new();
        match value {
            Value::Str(bytes) => text.extend_from_slice(bytes),
            other => crate::csv::write_value(other, &mut text),
        }
        let text = String::from_utf8_lossy(&text);
        (!text.is_empty()).then(|| Id::Text(text.into()))
    }

    fn text(&self) -> Option<Box<str>> {
        match self {
            Id::Number(_) => None,
            Id::Text(text) => Some(text.clone()),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => text.fmt(f),
        }
    }
}

/// What selects the track of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TrackKey {
    agent: Box<str>,
    kind: Box<str>,
    pid: Option<Id>,
    tid: Option<Id>,
}

impl TrackKey {
    /// The key of these values: agent, kind, process, thread.
    pub(super) fn of([agent, kind, pid, tid]: [Option<Value<'_>>; 4]) -> TrackKey {
        let text = |value: Option<Value<'_>>| match value {
            Some(Value::Str(text)) => String::from_utf8_lossy(text).into(),
            _ => Box::default(),
        };
        TrackKey {
            agent: text(agent),
            kind: text(kind),
            pid: Id::of(pid),
            tid: Id::of(tid),
        }
    }

    /// The key of the process of a thread.
    pub(super) fn process(&self) -> TrackKey {
        TrackKey {
            tid: None,
            ..self.clone()
        }
    }

    /// Name of the track for people.
    fn name(&self) -> String {
        let mut words = Vec::new();
        if !self.agent.is_empty() {
            words.push(self.agent.to_string());
        }
        if let Some(pid) = &self.pid {
            words.push(format!("process {pid}"));
        }
        if let Some(tid) = &self.tid {
            words.push(format!("thread {tid}"));
        }
        if words.is_empty() {
            words.push(self.kind.to_string());
        }
        words.join(" ")
    }
}

/// The tracks used so far.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    lanes: HashMap<TrackKey, Lanes>,
    /// Tracks that must be written before the next event.
    pub(super) new: Vec<Track>,
    /// The agent of each process. Readers identify processes by number only, so a process of
    /// another agent with the same number gets a named track instead.
    owners: HashMap<Id, Box<str>>,
    /// The number of each process that has a text instead.
    numbers: HashMap<Id, i32>,
    /// Processes and threads that have a text instead of a number.
    texts: i32,
    count: usize,
}

impl Tracks {
    /// The track for a slice, or without an end for an instant. Slices must be in the order of
    /// their starts, the longest first among equal starts. `None` if it would need a track beyond
    /// [`TRACKS_MAX`].
    pub(super) fn track(&mut self, key: &TrackKey, begin: i64, end: Option<i64>) -> Option<u64> {
        let lanes = self.lanes.get_mut(key);
        let found = lanes.and_then(|lanes| match end {
            Some(end) => lanes.place(begin, end),
            None => lanes.first(),
        });
        if found.is_some() {
            return found;
        }
        let id = self.add(key)?;
        let lanes = self.lanes.entry(key.clone()).or_default();
        lanes.add(id, end);
        Some(id)
    }

    /// A track besides those of events, of which there is one.
    pub(super) fn own(&self, name: &str) -> Track {
        Track {
            id: self.count as u64 + 1,
            parent: None,
            place: Place::Named(name.to_owned()),
        }
    }

    fn next_id(&mut self) -> Option<u64> {
        if self.count >= TRACKS_MAX {
            return None;
        }
        self.count += 1;
        Some(self.count as u64)
    }

    /// The process number, if readers can identify the process by it.
    fn unique_pid(&mut self, key: &TrackKey) -> Option<i32> {
        let id = key.pid.as_ref()?;
        let owner = self.owners.entry(id.clone());
        if **owner.or_insert_with(|| key.agent.clone()) != *key.agent {
            return None;
        }
        if let Id::Number(number) = id {
            return i32::try_from(*number).ok();
        }
        if let Some(number) = self.numbers.get(id) {
            return Some(*number);
        }
        let number = self.number_of_text();
        self.numbers.insert(id.clone(), number);
        Some(number)
    }

    /// A number for a text: the greatest ones, which no system gives.
    fn number_of_text(&mut self) -> i32 {
        self.texts += 1;
        i32::MAX - self.texts
    }

    /// Adds a track for a key.
    fn add(&mut self, key: &TrackKey) -> Option<u64> {
        let number = self.lanes.get(key).map_or(0, Lanes::len);
        let parent = match (&key.pid, &key.tid) {
            (Some(_), Some(_)) => Some(self.process(&key.process())?),
            _ => None,
        };
        let id = self.next_id()?;
        let place = match (number, self.unique_pid(key), &key.tid) {
            (0, Some(pid), Some(tid)) => Place::Thread {
                pid,
                tid: match tid {
                    Id::Number(tid) => *tid,
                    Id::Text(_) => self.number_of_text().into(),
                },
                text: tid.text(),
            },
            (0, Some(pid), None) => Place::Process {
                pid,
                agent: key.agent.clone(),
                text: key.pid.as_ref().and_then(Id::text),
            },
            (0, ..) => Place::Named(key.name()),
            (more, ..) => Place::Named(format!("{} (overlapping {more})", key.name())),
        };
        self.new.push(Track { id, parent, place });
        Some(id)
    }

    /// The track of a process.
    fn process(&mut self, key: &TrackKey) -> Option<u64> {
        if let Some(first) = self.lanes.get(key).and_then(Lanes::first) {
            return Some(first);
        }
        let id = self.add(key)?;
        self.lanes.entry(key.clone()).or_default().add(id, None);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(agent: &str, pid: i64, tid: i64) -> TrackKey {
        TrackKey::of([
            Some(agent.into()),
            None,
            Some(Value::Int(pid)),
            Some(Value::Int(tid)),
        ])
    }

    #[test]
    fn slices_that_overlap_partly_get_separate_tracks() {
        let mut tracks = Tracks::default();
        let key = key("a", 1, 2);
        let mut track = |begin, end| tracks.track(&key, begin, end).unwrap();
        let first = track(0, Some(100));
        assert_eq!(track(10, Some(50)), first, "inside");
        assert_eq!(track(50, Some(100)), first, "after the inner one");
        assert_eq!(track(60, None), first, "instants overlap nothing");
        let second = track(70, Some(120));
        assert_ne!(second, first);
        assert_eq!(track(100, Some(101)), first);
        assert_eq!(track(119, Some(130)), first);
        assert_eq!(track(120, Some(121)), first);
        assert_eq!(tracks.new.len(), 3, "a process, a thread, one more track");
    }

    #[test]
    fn what_needs_too_many_tracks_has_none() {
        let mut tracks = Tracks::default();
        let key = |tid| key("a", 1, tid);
        let last = i64::try_from(TRACKS_MAX).unwrap();
        // The process has a track, too.
        for tid in 1..last {
            assert!(tracks.track(&key(tid), 0, None).is_some(), "{tid}");
        }
        assert_eq!(tracks.track(&key(last), 0, None), None);
        assert!(tracks.track(&key(1), 0, None).is_some());
    }

    #[test]
    fn processes_of_two_agents_with_one_number_are_separate() {
        let mut tracks = Tracks::default();
        let first = tracks.track(&key("a", 1, 1), 0, None).unwrap();
        let second = tracks.track(&key("b", 1, 1), 0, None).unwrap();
        assert_ne!(first, second);
        let place = &tracks.new.last().unwrap().place;
        assert!(matches!(place, Place::Named(name) if name == "b process 1 thread 1"));
    }
}
