//! Events and packets that the producer discarded, according to its counters.

use super::folder::TraceFolder;
use super::stream::{PacketEntry, TraceStream};
use super::text::TimeText;

/// What was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// Event records: the counter in the packet context increased.
    Events,
    /// Packets: sequence numbers are missing.
    Packets,
}

/// Events or packets that the producer discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whether events or packets.
    pub kind: LossKind,
    /// Their number.
    pub count: u64,
    /// The times between which they were discarded, in nanoseconds, when known.
    pub between: Option<(i64, i64)>,
    /// The warning, in Babeltrace's words.
    pub message: String,
}

/// The losses of the streams of `trace`, in the order of the streams.
pub fn losses(trace: &TraceFolder) -> Vec<Loss> {
    let mut losses = Vec::new();
    for stream in &trace.streams {
        for pair in stream.packets.windows(2) {
            let [before, after] = pair else { continue };
            losses.extend(packets_between(before, after).map(|found| loss(trace, stream, found)));
            losses.extend(events_between(before, after).map(|found| loss(trace, stream, found)));
        }
    }
    losses
}

type Found = (LossKind, u64, Option<(i64, i64)>);

fn packets_between(before: &PacketEntry, after: &PacketEntry) -> Option<Found> {
    let (last, next) = (
        before.preamble.info.sequence?,
        after.preamble.info.sequence?,
    );
    let count = next.checked_sub(last)?.checked_sub(1)?;
    (count > 0).then(|| (LossKind::Packets, count, before.end.zip(after.begin)))
}

fn events_between(before: &PacketEntry, after: &PacketEntry) -> Option<Found> {
    let (last, next) = (
        before.preamble.info.discarded_events?,
        after.preamble.info.discarded_events?,
    );
    let count = next.checked_sub(last)?;
    (count > 0).then(|| (LossKind::Events, count, before.end.zip(after.end)))
}

fn loss(trace: &TraceFolder, stream: &TraceStream, (kind, count, between): Found) -> Loss {
    let what = match kind {
        LossKind::Events => "event",
        LossKind::Packets => "packet",
    };
    let plural = if count == 1 { "" } else { "s" };
    let when = match between {
        Some((begin, end)) => format!("between [{}] and [{}]", time(begin), time(end)),
        None => "(unknown time range)".to_owned(),
    };
    let name = trace.path.display();
    let uuid = match trace.class().uuid() {
        Some(uuid) => format!("(UUID: {uuid})"),
        None => "(no UUID)".to_owned(),
    };
    let file = stream
        .files
        .first()
        .map(|file| file.path.display().to_string());
    let class = stream
        .class
        .map_or(0, |class| trace.class().stream_class(class).id);
    let id = stream
        .id
        .map_or("no stream ID".to_owned(), |id| format!("stream ID: {id}"));
    let message = format!(
        "WARNING: Tracer discarded {count} {what}{plural} {when} in trace \"{name}\" {uuid} \
         within stream \"{}\" (stream class ID: {class}, {id}).",
        file.unwrap_or_default()
    );
    Loss {
        kind,
        count,
        between,
        message,
    }
}

fn time(nanoseconds: i64) -> String {
    let mut out = Vec::new();
    TimeText::default().push(&mut out, nanoseconds);
    String::from_utf8_lossy(&out).into_owned()
}
