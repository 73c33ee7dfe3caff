//! How many messages Babeltrace would send, as its `sink.utils.counter` prints them.

use std::io::{self, Write};

use ctf_folder::{DetailsOptions, LossKind, TraceFolder, losses};

/// What is counted, in the order in which it is printed.
const MESSAGES: [&str; 8] = [
    "Event",
    "Stream beginning",
    "Stream end",
    "Packet beginning",
    "Packet end",
    "Discarded event",
    "Discarded packet",
    "Message iterator inactivity",
];

/// How the lines of these messages begin in the text of all messages.
const LINES: [&str; 7] = [
    "Event",
    "Stream beginning",
    "Stream end",
    "Packet beginning",
    "Packet end",
    "Discarded events",
    "Discarded packets",
];

/// Numbers of messages.
#[derive(Debug, Default)]
pub(super) struct Counts([u64; MESSAGES.len()]);

impl Counts {
    /// All messages of traces with so many events.
    pub(super) fn of(traces: &[TraceFolder], events: u64) -> Self {
        let (mut streams, mut packets) = (0, 0);
        for stream in traces.iter().flat_map(|trace| &trace.streams) {
            streams += 1;
            packets += stream.packets.len() as u64;
        }
        let lost = |kind| {
            let all = traces.iter().flat_map(losses);
            all.filter(|loss| loss.kind == kind).count() as u64
        };
        let (events_lost, packets_lost) = (lost(LossKind::Events), lost(LossKind::Packets));
        Self([
            events,
            streams,
            streams,
            packets,
            packets,
            events_lost,
            packets_lost,
            0,
        ])
    }

    pub(super) fn print(&self, output: &mut dyn Write) -> io::Result<()> {
        for (count, what) in self.0.iter().zip(MESSAGES) {
            writeln!(output, "{count:>15} {what} message{}", plural(*count))?;
        }
        let total: u64 = self.0.iter().sum();
        writeln!(output, "{total:>15} message{} (TOTAL)", plural(total))
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Counts the messages in their text, of which each is one line.
#[derive(Debug, Default)]
pub(super) struct LineCounter {
    pub(super) counts: Counts,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl LineCounter {
    /// How the text is written that is counted.
    pub(super) fn options() -> DetailsOptions {
        DetailsOptions {
            compact: true,
            with_metadata: false,
            with_time: false,
            ..DetailsOptions::default()
        }
    }

    fn count(&mut self) {
        // `{TRACE CLASS STREAM} MESSAGE`.
        let behind = memchr::memchr(b'}', &self.line).map(|end| end + 2);
        let message = behind.and_then(|begin| self.line.get(begin..));
        let message = message.unwrap_or_default();
        let found = LINES
            .iter()
            .position(|line| message.starts_with(line.as_bytes()));
        if let Some(count) = found.and_then(|found| self.counts.0.get_mut(found)) {
            *count += 1;
        }
        self.line.clear();
    }
}

impl Write for LineCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.count();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_singular() {
        let text = |counts| {
            let mut text = Vec::new();
            Counts(counts).print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let several = text([2, 1, 1, 0, 0, 0, 0, 0]);
        assert!(several.starts_with(
            "              2 Event messages\n              1 Stream beginning message\n"
        ));
        assert!(several.ends_with(" 4 messages (TOTAL)\n"), "{several}");
        let one = text([1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(one.ends_with(" 1 message (TOTAL)\n"), "{one}");
    }
}
