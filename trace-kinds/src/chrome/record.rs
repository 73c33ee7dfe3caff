//! One event: its members.

use super::json::{Cursor, Json};
use super::time::nanoseconds;

/// The members of an event that have a meaning of their own, and the others.
#[derive(Debug, Default)]
pub(super) struct Record<'a> {
    pub(super) name: Option<Json<'a>>,
    pub(super) cat: Option<Json<'a>>,
    phase: Option<Json<'a>>,
    ts: Option<Json<'a>>,
    dur: Option<Json<'a>>,
    pub(super) pid: Option<Json<'a>>,
    pub(super) tid: Option<Json<'a>>,
    pub(super) id: Option<Json<'a>>,
    pub(super) args: Option<Json<'a>>,
    /// Other members: key, whether it has escapes, and value.
    pub(super) others: Vec<(&'a [u8], bool, Json<'a>)>,
}

/// An element of the list of events that is not an event.
#[derive(Debug)]
pub(super) struct NotAnEvent;

/// An event with its times in nanoseconds.
#[derive(Debug)]
pub(super) struct Timed<'a> {
    pub(super) record: Record<'a>,
    pub(super) ts: i64,
    /// Of a complete event (`X`).
    pub(super) dur: Option<i64>,
}

impl<'a> Record<'a> {
    fn parse(bytes: &'a [u8]) -> Option<(Self, bool)> {
        let mut cursor = Cursor::new(bytes);
        let mut record = Record::default();
        let mut is_empty = true;
        cursor.object(1, &mut |key, escaped, value| {
            is_empty = false;
            let member = match key {
                b"name" => &mut record.name,
                b"cat" => &mut record.cat,
                b"ph" => &mut record.phase,
                b"ts" => &mut record.ts,
                b"dur" => &mut record.dur,
                b"pid" => &mut record.pid,
                b"tid" => &mut record.tid,
                b"id" => &mut record.id,
                b"args" => &mut record.args,
                _ => return record.others.push((key, escaped, value)),
            };
            *member = Some(value);
        })?;
        cursor.is_at_end().then_some((record, is_empty))
    }

    /// The phase, as text without escapes.
    pub(super) fn phase(&self) -> &'a [u8] {
        match self.phase {
            Some(Json::Text(phase, false)) => phase,
            _ => b"",
        }
    }

    pub(super) fn phase_value(&self) -> Option<Json<'a>> {
        self.phase
    }
}

/// The text of a number or a string without escapes: processes and ids are written as either.
pub(super) fn plain(value: Option<Json<'_>>) -> &[u8] {
    match value {
        Some(Json::Text(text, _) | Json::Number(text)) => text,
        _ => b"",
    }
}

impl<'a> Timed<'a> {
    /// The event; `None` for names of processes and threads and the like, and for empty objects.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, NotAnEvent> {
        let (record, is_empty) = Record::parse(bytes).ok_or(NotAnEvent)?;
        let time = |value| match value {
            Some(Json::Number(text) | Json::Text(text, false)) => nanoseconds(text),
            _ => None,
        };
        match record.phase() {
            // Some producers write `{}` after the last comma.
            b"" if is_empty => Ok(None),
            b"" => Err(NotAnEvent),
            b"M" => Ok(None),
            phase => {
                let dur = match (phase, record.dur) {
                    (b"X", Some(_)) => time(record.dur).map(Some),
                    _ => Some(None),
                };
                match (time(record.ts), dur) {
                    (Some(ts), Some(dur)) => Ok(Some(Timed { record, ts, dur })),
                    _ => Err(NotAnEvent),
                }
            }
        }
    }
}

/// Whether `bytes` are an object with a phase.
pub(super) fn has_phase(bytes: &[u8]) -> bool {
    Record::parse(bytes).is_some_and(|(record, _)| !record.phase().is_empty())
}
