//! The beginning of a stream: its name, and its trace.

use std::path::{self, Component, Path, PathBuf};

use ctf::class::{DisplayBase, EnvironmentValue};

use super::number::{push_decimal, push_int};
use super::options::DetailsOptions;
use super::text::Lines;
use crate::folder::TraceFolder;
use crate::stream::TraceStream;

/// What identifies a stream in the text.
#[derive(Clone, Debug)]
pub(super) struct StreamIds {
    /// Number of the trace, in the order in which traces begin.
    pub(super) trace: usize,
    pub(super) class: u64,
    pub(super) id: u64,
    /// Path of the first file.
    pub(super) name: PathBuf,
}

impl StreamIds {
    /// The streams of a trace. A stream without an id gets the next number, by the paths of files.
    pub(super) fn of(trace: &TraceFolder, number: usize) -> Vec<StreamIds> {
        let name = |stream: &TraceStream| {
            let first = stream.packets.first().map_or(0, |packet| packet.file);
            let path = stream.files.get(first).map(|file| file.path.clone());
            let path = path.unwrap_or_default();
            normal(&path)
        };
        let mut names: Vec<PathBuf> = trace
            .streams
            .iter()
            .filter(|stream| stream.id.is_none())
            .map(name)
            .collect();
        names.sort();
        let ids = trace.streams.iter().map(|stream| {
            let name = name(stream);
            let place = names.iter().position(|other| *other == name);
            let class = stream.class;
            StreamIds {
                trace: number,
                class: class.map_or(0, |class| trace.class().stream_class(class).id),
                id: stream.id.unwrap_or(place.unwrap_or_default() as u64),
                name,
            }
        });
        ids.collect()
    }
}

/// The absolute path without `.` and `..`. Links stay as they are, as in Babeltrace's text.
fn normal(path: &Path) -> PathBuf {
    let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut normal = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// `{Trace 0, Stream class ID 1, Stream ID 2}`.
pub(super) fn push_tag(lines: &mut Lines, options: DetailsOptions, ids: &StreamIds) {
    let StreamIds {
        trace, class, id, ..
    } = ids;
    lines.push(&if options.compact {
        format!("{{{trace} {class} {id}}} ")
    } else {
        format!("{{Trace {trace}, Stream class ID {class}, Stream ID {id}}}\n")
    });
}

/// The beginning of a stream, without its time.
pub(super) fn push_beginning(
    lines: &mut Lines,
    options: DetailsOptions,
    trace: &TraceFolder,
    stream: &TraceStream,
    (ids, all): (&StreamIds, &[StreamIds]),
) {
    push_tag(lines, options, ids);
    lines.push("Stream beginning");
    if options.compact {
        lines.push("\n");
        return;
    }
    lines.push(":\n");
    lines.deeper();
    if options.with_stream_name {
        lines.line("Name", &ids.name.to_string_lossy());
    }
    let class = stream.class.map(|class| trace.class().stream_class(class));
    let name = class.and_then(|class| class.identity.name.as_deref());
    if let (true, Some(name)) = (options.with_stream_class_name, name) {
        lines.line("Class name", name);
    }
    push_trace(lines, options, trace, all);
    lines.back();
}

fn push_trace(
    lines: &mut Lines,
    options: DetailsOptions,
    trace: &TraceFolder,
    streams: &[StreamIds],
) {
    lines.indent();
    lines.push("Trace");
    if options.with_trace_name {
        lines.push(&format!(" `{}`", trace.plan.name()));
    }
    lines.push(":\n");
    lines.deeper();
    if let (true, Some(uuid)) = (options.with_uuid, trace.class().uuid()) {
        lines.line("UUID", &uuid.to_string());
    }
    let mut entries: Vec<_> = trace.class().environment().iter().collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    if !entries.is_empty() {
        lines.indent();
        lines.push("Environment (");
        push_decimal(&mut lines.out, entries.len() as u64);
        let plural = if entries.len() == 1 { "y" } else { "ies" };
        lines.push(&format!(" entr{plural}):\n"));
        lines.deeper();
        for (name, value) in entries {
            lines.name(name);
            lines.push(" ");
            match value {
                EnvironmentValue::Integer(value) => {
                    push_int(&mut lines.out, *value, DisplayBase::Decimal);
                }
                EnvironmentValue::String(value) => lines.push(value),
            }
            lines.push("\n");
        }
        lines.back();
    }
    let mut sorted: Vec<(u64, u64)> = streams.iter().map(|ids| (ids.id, ids.class)).collect();
    sorted.sort_unstable();
    for (id, class) in sorted {
        lines.indent();
        lines.push("Stream (ID ");
        push_decimal(&mut lines.out, id);
        lines.push(", Class ID ");
        push_decimal(&mut lines.out, class);
        lines.push(")\n");
    }
    lines.back();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_absolute_and_keep_links() {
        for (path, expected) in [
            ("/traces/./a/../b/stream", "/traces/b/stream"),
            ("/../stream", "/stream"),
            ("/proc/self/stream", "/proc/self/stream"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
