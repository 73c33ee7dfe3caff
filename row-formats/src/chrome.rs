//! Chrome traces in JSON: events as complete events, which most viewers of timelines read.
//!
//! ```text
//! {"displayTimeUnit":"ns","traceEvents":[
//! {"ph":"M","pid":7,"name":"process_name","args":{"name":"node-1"}},
//! {"ph":"X","pid":7,"tid":8,"ts":1700000000000000.25,"dur":12.5,"name":"read","args":{…}}
//! ],"otherData":{"tracehold.skipped":["…"]}}
//! ```
//!
//! Times are microseconds with all their nanoseconds; readers that keep them as floating-point
//! numbers round them.

use std::collections::HashMap;
use std::io::Write as _;

use query_language::{FieldTable, Value};
use trace_kinds::Event;

use crate::json::{write_json_string, write_json_value};
use crate::timeline::{Encoder, Place, Slice, SliceFields, TimelineSink, Track};
use crate::{Columns, RowFormat, RowSink, SinkOptions};

/// Numbers from here on are of processes and threads that have no usable number of their own.
const OWN_NUMBERS: u64 = 1 << 31;
/// Name of the instant that says what the trace lacks.
const LACKING: &str = "Not everything could be read";

/// Events as complete events of a Chrome trace.
#[derive(Debug, Clone, Default)]
pub struct Chrome {
    slice: Option<SliceFields>,
}

impl RowFormat for Chrome {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.slice = Some(SliceFields::insert(columns, table));
    }

    /// The place of the slice, then members of its JSON object.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        let Some(fields) = &self.slice else {
            return;
        };
        fields.write_place(event, out);
        out.extend_from_slice(b"\"name\":");
        write_text(event.field(fields.name), out);
        if let Some(cat) = event.field(fields.cat) {
            out.extend_from_slice(b",\"cat\":");
            write_text(Some(cat), out);
        }
        let mut separator: &[u8] = b",\"args\":{";
        fields.each_argument(event, &mut |name, value| {
            out.extend_from_slice(separator);
            separator = b",";
            write_json_string(name, out);
            out.push(b':');
            write_json_value(value, out);
        });
        if separator == b"," {
            out.push(b'}');
        }
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(TimelineSink::new(Objects::default()))
    }
}

/// A value as text, which names and categories are.
fn write_text(value: Option<Value<'_>>, out: &mut Vec<u8>) {
    let text = match value {
        None => Vec::new(),
        Some(text @ Value::Str(_)) => return write_json_value(text, out),
        Some(other) => {
            let mut text = Vec::new();
            write_json_value(other, &mut text);
            text
        }
    };
    write_json_string(&String::from_utf8_lossy(&text), out);
}

/// The numbers or texts of a track as JSON, and its name until its first event.
#[derive(Debug)]
struct Ids {
    pid: String,
    tid: String,
    name: Option<String>,
}

/// Writes the objects of a trace.
#[derive(Debug, Default)]
struct Objects {
    tracks: HashMap<u64, Ids>,
    has_objects: bool,
}

impl Objects {
    /// Begins an object of `traceEvents`.
    fn object(&mut self, out: &mut Vec<u8>) {
        let separator: &[u8] = if self.has_objects { b",\n{" } else { b"\n{" };
        self.has_objects = true;
        out.extend_from_slice(separator);
    }

    fn name(
        &mut self,
        what: &str,
        (pid, tid): (&str, Option<&str>),
        name: &str,
        out: &mut Vec<u8>,
    ) {
        self.object(out);
        write(out, format_args!("\"ph\":\"M\",\"pid\":{pid}"));
        if let Some(tid) = tid {
            write(out, format_args!(",\"tid\":{tid}"));
        }
        write(
            out,
            format_args!(",\"name\":\"{what}\",\"args\":{{\"name\":"),
        );
        write_json_string(name, out);
        out.extend_from_slice(b"}}");
    }

    /// Writes the begin of an event, after the name of its track if it is the first one there.
    fn event(&mut self, ph: &str, track: u64, start: i64, out: &mut Vec<u8>) {
        let ids = self.tracks.get_mut(&track);
        let none = || ("0".to_owned(), "0".to_owned(), None);
        let (pid, tid, name) = ids.map_or_else(none, |ids| {
            (ids.pid.clone(), ids.tid.clone(), ids.name.take())
        });
        if let Some(name) = name {
            self.name("thread_name", (&pid, Some(&tid)), &name, out);
        }
        self.object(out);
        write(
            out,
            format_args!("\"ph\":\"{ph}\",\"pid\":{pid},\"tid\":{tid},\"ts\":"),
        );
        write_micros(start, out);
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to memory does not fail");
}

/// A text as JSON.
fn json_text(text: &str) -> String {
    let mut json = Vec::new();
    write_json_string(text, &mut json);
    String::from_utf8_lossy(&json).into_owned()
}

/// Nanoseconds as microseconds.
fn write_micros(nanos: i64, out: &mut Vec<u8>) {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    write(out, format_args!("{sign}{}", nanos / 1000));
    let rest = nanos % 1000;
    if rest != 0 {
        let digits = format!(".{rest:03}");
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

impl Encoder for Objects {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    }

    fn first(&mut self, _: i64, _: &mut Vec<u8>) {}

    fn track(&mut self, track: Track, out: &mut Vec<u8>) {
        let own = (OWN_NUMBERS + track.id).to_string();
        let usable = |number: i64| {
            let number = u64::try_from(number).ok().filter(|it| *it < OWN_NUMBERS);
            number.map(|number| number.to_string())
        };
        let parent = track.parent.and_then(|parent| self.tracks.get(&parent));
        let parent = parent.map(|parent| parent.pid.clone());
        let (pid, tid, name) = match track.place {
            Place::Thread { pid, tid, text } => {
                let pid = parent.or_else(|| usable(pid.into()));
                let known = text.map_or_else(|| usable(tid), |text| Some(json_text(&text)));
                let name = known.is_none().then(|| format!("thread {tid}"));
                let pid = pid.unwrap_or_else(|| own.clone());
                (pid, known.unwrap_or(own), name)
            }
            Place::Process { pid, agent, text } => {
                let known = text.map_or_else(|| usable(pid.into()), |text| Some(json_text(&text)));
                let pid = known.unwrap_or_else(|| own.clone());
                if !agent.is_empty() {
                    self.name("process_name", (&pid, None), &agent, out);
                }
                (pid, own, Some("process".to_owned()))
            }
            Place::Named(name) => match parent {
                Some(pid) => (pid, own, Some(name)),
                None => {
                    self.name("process_name", (&own, None), &name, out);
                    (own.clone(), own, None)
                }
            },
        };
        self.tracks.insert(track.id, Ids { pid, tid, name });
    }

    fn slice(&mut self, slice: Slice<'_>, out: &mut Vec<u8>) {
        match slice.dur {
            Some(dur) => {
                self.event("X", slice.track, slice.start, out);
                out.extend_from_slice(b",\"dur\":");
                write_micros(dur, out);
            }
            None => {
                self.event("i", slice.track, slice.start, out);
                out.extend_from_slice(b",\"s\":\"t\"");
            }
        }
        out.push(b',');
        out.extend_from_slice(slice.fields);
        out.push(b'}');
    }

    fn lacking(&mut self, track: u64, start: i64, lacks: &[String], out: &mut Vec<u8>) {
        self.event("i", track, start, out);
        write(
            out,
            format_args!(",\"s\":\"t\",\"name\":\"{LACKING}\",\"args\":{{"),
        );
        for (number, reason) in (1..).zip(lacks) {
            let comma = if number > 1 { "," } else { "" };
            write(out, format_args!("{comma}\"{number}\":"));
            write_json_string(reason, out);
        }
        out.extend_from_slice(b"}}");
    }

    fn end(&mut self, lacks: &[String], out: &mut Vec<u8>) {
        out.extend_from_slice(b"\n]");
        if !lacks.is_empty() {
            out.extend_from_slice(b",\"otherData\":{\"tracehold.skipped\":[");
            for (at, reason) in lacks.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json_string(reason, out);
            }
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(b"}\n");
    }
}
