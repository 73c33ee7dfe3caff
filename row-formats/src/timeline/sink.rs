//! Rows in order to slices on tracks.

use std::cmp::Reverse;
use std::io;

use query_language::{Number, Value};

use super::ends::{Phase, SliceEnds};
use super::tracks::{TRACKS_MAX, Track, TrackKey, Tracks};
use crate::cells::Cells;
use crate::{Known, Out, RowSink};

/// Events with the same start that are sorted by their end; more are written in batches of this
/// size.
const SAME_START_MAX: usize = 4096;
/// Name of the track that says what a timeline lacks.
const OWN_TRACK: &str = "Tracehold";

/// A slice, or an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice<'s> {
    /// The id of its track, which was written before.
    pub(crate) track: u64,
    /// Nanoseconds since 1970.
    pub(crate) start: i64,
    /// Nanoseconds, which may be negative; `None` for an instant.
    pub(crate) dur: Option<i64>,
    /// Name and arguments, as the format of the rows encoded them.
    pub(crate) fields: &'s [u8],
}

impl Slice<'_> {
    /// The end of a slice, which is not before its start.
    pub(crate) fn end(&self) -> Option<i64> {
        end_of(self.start, self.dur)
    }
}

fn end_of(start: i64, dur: Option<i64>) -> Option<i64> {
    dur.map(|dur| start.saturating_add(dur.max(0)))
}

/// Writes the parts of a timeline in order.
pub(crate) trait Encoder {
    /// What precedes everything.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// What precedes the first track. The first slice starts at `start`.
    fn first(&mut self, start: i64, out: &mut Vec<u8>);

    /// A track.
    fn track(&mut self, track: Track, out: &mut Vec<u8>);

    /// A slice or an instant.
    fn slice(&mut self, slice: Slice<'_>, out: &mut Vec<u8>);

    /// An instant on a track, which was written before, that says what the timeline lacks.
    fn lacking(&mut self, track: u64, start: i64, lacks: &[String], out: &mut Vec<u8>);

    /// What follows everything.
    fn end(&mut self, lacks: &[String], out: &mut Vec<u8>);
}

/// Assigns events to tracks, and gives both to an encoder.
#[derive(Debug)]
pub(crate) struct TimelineSink<E> {
    encoder: E,
    tracks: Tracks,
    /// Start of the pending events.
    start: Option<i64>,
    /// Start of the first event that was written.
    first: Option<i64>,
    pending: Vec<PendingEvent>,
    ends: SliceEnds,
    without_time: u64,
    without_track: u64,
    with_negative: u64,
}

#[derive(Debug)]
struct PendingEvent {
    track: TrackKey,
    phase: Phase,
    dur: Option<i64>,
    /// No earlier than the start.
    end: Option<i64>,
    fields: Vec<u8>,
}

impl<E: Encoder> TimelineSink<E> {
    pub(crate) fn new(encoder: E) -> Self {
        TimelineSink {
            encoder,
            tracks: Tracks::default(),
            start: None,
            first: None,
            pending: Vec::new(),
            ends: SliceEnds::default(),
            without_time: 0,
            without_track: 0,
            with_negative: 0,
        }
    }

    fn begin_at(&mut self, start: i64, out: &mut Vec<u8>) -> i64 {
        match self.first {
            Some(first) => first,
            None => {
                self.encoder.first(start, out);
                *self.first.insert(start)
            }
        }
    }

    fn flush(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let Some(start) = self.start else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        self.begin_at(start, &mut bytes);
        self.ends.drop_before(start);
        // A slice that contains another one with the same start must be written first.
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|event| Reverse(event.end));
        for event in pending.drain(..) {
            match event.end {
                Some(end) => self.ends.slice(event.phase, &event.track, end),
                None if self.ends.take(event.phase, &event.track, start) => continue,
                None => {}
            }
            let track = self.tracks.track(&event.track, start, event.end);
            for new in self.tracks.new.drain(..) {
                self.encoder.track(new, &mut bytes);
            }
            let Some(track) = track else {
                self.without_track += 1;
                out(&bytes)?;
                bytes.clear();
                continue;
            };
            let slice = Slice {
                track,
                start,
                dur: event.dur,
                fields: &event.fields,
            };
            self.with_negative += u64::from(event.dur.is_some_and(i64::is_negative));
            self.encoder.slice(slice, &mut bytes);
            out(&bytes)?;
            bytes.clear();
        }
        self.pending = pending;
        Ok(())
    }

    /// Says in the timeline itself what it lacks, where a viewer shows it.
    fn say(&mut self, lacks: &[String], out: &mut Vec<u8>) {
        let start = self.begin_at(self.start.unwrap_or(0), out);
        let track = self.tracks.own(OWN_TRACK);
        let id = track.id;
        self.encoder.track(track, out);
        self.encoder.lacking(id, start, lacks, out);
    }
}

fn nanos(value: Option<Value<'_>>) -> Option<i64> {
    match value?.as_number()?.normalize() {
        Number::Int(value) => i64::try_from(value).ok(),
        Number::Float(_) => None,
    }
}

impl<E: Encoder> RowSink for TimelineSink<E> {
    fn begin(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.encoder.begin(&mut bytes);
        out(&bytes)
    }

    fn row(&mut self, row: &[u8], out: &mut Out<'_>) -> io::Result<()> {
        let mut cells = Cells::new(row);
        let (ts, dur) = (nanos(cells.next()?), nanos(cells.next()?));
        let phase = Phase::of(cells.next()?);
        let track = [cells.next()?, cells.next()?, cells.next()?, cells.next()?];
        // Viewers have no times before 1970.
        let Some(ts) = ts.filter(|ts| *ts >= 0) else {
            self.without_time += 1;
            return Ok(());
        };
        if self.start != Some(ts) || self.pending.len() >= SAME_START_MAX {
            self.flush(out)?;
            self.start = Some(ts);
        }
        self.pending.push(PendingEvent {
            track: TrackKey::of(track),
            phase,
            dur,
            end: end_of(ts, dur),
            fields: cells.rest().to_vec(),
        });
        Ok(())
    }

    fn end(&mut self, known: Known<'_>, out: &mut Out<'_>) -> io::Result<Vec<String>> {
        self.flush(out)?;
        let mut notes = Vec::new();
        if self.without_time > 0 {
            let count = self.without_time;
            notes.push(format!(
                "{count} events without a time between 1970 and 2262 were skipped: a timeline cannot show them"
            ));
        }
        if self.without_track > 0 {
            let count = self.without_track;
            notes.push(format!(
                "{count} events were skipped: they need more than the {TRACKS_MAX} tracks that a \
                 timeline can have; narrow the query"
            ));
        }
        let lacks = [known.skipped, &notes].concat();
        let mut bytes = Vec::new();
        if !lacks.is_empty() {
            self.say(&lacks, &mut bytes);
        }
        self.encoder.end(&lacks, &mut bytes);
        out(&bytes)?;
        if self.with_negative > 0 {
            let count = self.with_negative;
            notes.push(format!(
                "{count} events have a negative duration, which is in the trace, but a viewer shows \
                 them without a length"
            ));
        }
        Ok(notes)
    }
}
