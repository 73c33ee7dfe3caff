//! Tracks: on each, slices lie inside each other or behind each other.

use std::collections::HashMap;
use std::io;

use query_language::{Number, Value};

use super::message::{message, track};

/// Tracks of one answer.
const TRACKS_MAX: usize = 1 << 16;
/// Slices that are open at once on a track.
const DEPTH_MAX: usize = 256;

/// Where an event belongs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) agent: Box<str>,
    pub(super) kind: Box<str>,
    pub(super) pid: Option<i64>,
    pub(super) tid: Option<i64>,
}

impl Place {
    /// The place that these values are: agent, kind, process, thread.
    pub(super) fn of([agent, kind, pid, tid]: [Option<Value<'_>>; 4]) -> Place {
        let text = |value: Option<Value<'_>>| match value {
            Some(Value::Str(text)) => String::from_utf8_lossy(text).into(),
            _ => Box::default(),
        };
        let whole = |value: Option<Value<'_>>| match value?.as_number()?.normalize() {
            Number::Int(value) => i64::try_from(value).ok(),
            Number::Float(_) => None,
        };
        Place {
            agent: text(agent),
            kind: text(kind),
            pid: whole(pid),
            tid: whole(tid),
        }
    }

    /// The process of a thread.
    fn process(&self) -> Place {
        Place {
            tid: None,
            ..self.clone()
        }
    }

    /// The place for people.
    fn name(&self) -> String {
        let mut words = Vec::new();
        if !self.agent.is_empty() {
            words.push(self.agent.to_string());
        }
        if let Some(pid) = self.pid {
            words.push(format!("process {pid}"));
        }
        if let Some(tid) = self.tid {
            words.push(format!("thread {tid}"));
        }
        if words.is_empty() {
            words.push(self.kind.to_string());
        }
        words.join(" ")
    }
}

/// The tracks that were used so far.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    places: HashMap<Place, Vec<Lane>>,
    /// Descriptors that stand in front of the next event.
    pub(super) news: Vec<Vec<u8>>,
    /// Whose process a number is: readers know processes by number only, so another agent's process
    /// of the same number is told by name.
    owners: HashMap<i32, Box<str>>,
    count: usize,
}

/// Slices that do not cross each other.
#[derive(Debug)]
struct Lane {
    uuid: u64,
    /// Ends of the slices that are open, the innermost last.
    open: Vec<i64>,
}

impl Tracks {
    /// The track for a slice, or without an end for an instant. Slices come in the order of their
    /// begins, of those that begin together the longest first.
    ///
    /// # Errors
    ///
    /// When there are too many tracks.
    pub(super) fn track(&mut self, place: &Place, begin: i64, end: Option<i64>) -> io::Result<u64> {
        let lanes = self.places.get_mut(place).map(Vec::as_mut_slice);
        for lane in lanes.unwrap_or_default() {
            let Some(end) = end else {
                return Ok(lane.uuid);
            };
            while lane.open.last().is_some_and(|open| *open <= begin) {
                lane.open.pop();
            }
            let fits = lane.open.last().is_none_or(|open| end <= *open);
            if fits && lane.open.len() < DEPTH_MAX {
                lane.open.push(end);
                return Ok(lane.uuid);
            }
        }
        let uuid = self.add(place)?;
        let lane = Lane {
            uuid,
            open: end.into_iter().collect(),
        };
        self.places.entry(place.clone()).or_default().push(lane);
        Ok(uuid)
    }

    fn next_uuid(&mut self) -> io::Result<u64> {
        self.count += 1;
        match self.count <= TRACKS_MAX {
            true => Ok(self.count as u64),
            false => Err(io::Error::other(format!(
                "there are more than {TRACKS_MAX} tracks in this trace; narrow the query"
            ))),
        }
    }

    /// Whether the place is a process that readers may know by its number.
    fn owns(&mut self, place: &Place) -> Option<i32> {
        let pid = i32::try_from(place.pid?).ok()?;
        let owner = self.owners.entry(pid);
        (**owner.or_insert_with(|| place.agent.clone()) == *place.agent).then_some(pid)
    }

    /// One more track of a place.
    fn add(&mut self, place: &Place) -> io::Result<u64> {
        let number = self.places.get(place).map_or(0, Vec::len);
        let parent = match (place.pid, place.tid) {
            (Some(_), Some(_)) => Some(self.process(&place.process())?),
            _ => None,
        };
        let uuid = self.next_uuid()?;
        let pid = self.owns(place);
        self.news.push(message(|descriptor| {
            descriptor.number(track::UUID, uuid);
            if let Some(parent) = parent {
                descriptor.number(track::PARENT_UUID, parent);
            }
            match (number, pid, place.tid) {
                (0, Some(pid), Some(tid)) => {
                    let thread = message(|thread| {
                        thread.number(track::THREAD_PID, i64::from(pid).cast_unsigned());
                        thread.number(track::THREAD_TID, tid.cast_unsigned());
                    });
                    descriptor.bytes(track::THREAD, &thread);
                }
                (0, Some(pid), None) => {
                    descriptor.bytes(track::PROCESS, &process_message(pid, place));
                }
                (0, ..) => descriptor.text(track::NAME, place.name().as_bytes()),
                (more, ..) => {
                    let name = format!("{} (overlapping {more})", place.name());
                    descriptor.text(track::NAME, name.as_bytes());
                }
            }
        }));
        Ok(uuid)
    }

    /// The track of a process.
    fn process(&mut self, place: &Place) -> io::Result<u64> {
        if let Some([first, ..]) = self.places.get(place).map(Vec::as_slice) {
            return Ok(first.uuid);
        }
        let uuid = self.add(place)?;
        let lane = Lane {
            uuid,
            open: Vec::new(),
        };
        self.places.insert(place.clone(), vec![lane]);
        Ok(uuid)
    }
}

fn process_message(pid: i32, place: &Place) -> Vec<u8> {
    message(|process| {
        process.number(track::PROCESS_PID, i64::from(pid).cast_unsigned());
        if !place.agent.is_empty() {
            process.text(track::PROCESS_NAME, place.agent.as_bytes());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(agent: &str, pid: i64, tid: i64) -> Place {
        Place::of([
            Some(agent.into()),
            None,
            Some(Value::Int(pid)),
            Some(Value::Int(tid)),
        ])
    }

    #[test]
    fn slices_that_cross_lie_on_tracks_of_their_own() {
        let mut tracks = Tracks::default();
        let own = place("a", 1, 2);
        let mut track = |begin, end| tracks.track(&own, begin, end).unwrap();
        let first = track(0, Some(100));
        assert_eq!(track(10, Some(50)), first, "inside");
        assert_eq!(track(50, Some(100)), first, "behind the inner one");
        assert_eq!(track(60, None), first, "instants cross nothing");
        let second = track(70, Some(120));
        assert_ne!(second, first);
        assert_eq!(track(100, Some(101)), first);
        assert_eq!(track(119, Some(130)), first);
        assert_eq!(track(120, Some(121)), first);
        assert_eq!(tracks.news.len(), 3, "a process, a thread, one more track");
    }

    #[test]
    fn processes_of_one_number_on_two_agents_are_apart() {
        let mut tracks = Tracks::default();
        let first = tracks.track(&place("a", 1, 1), 0, None).unwrap();
        let second = tracks.track(&place("b", 1, 1), 0, None).unwrap();
        assert_ne!(first, second);
        let told = tracks.news.concat();
        let named = b"b process 1 thread 1";
        assert!(told.windows(named.len()).any(|window| window == named));
    }
}
