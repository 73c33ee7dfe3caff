//! Messages in a window of time, as Babeltrace's trimmer passes them on.
//!
//! What is before the window is read and not printed. At its beginning, the streams that have had
//! messages begin again, and so do their packets. At its end, open packets and streams end.

use super::message::{MessageKind, MessageText, StreamMessages};
use crate::time_window::TimeWindow;

/// The streams of one trace, and how far they are in the window.
pub(super) struct TraceWindow {
    pub(super) window: TimeWindow,
    has_begun: bool,
    has_ended: bool,
    /// Numbers of the streams.
    streams: Vec<usize>,
    /// The classes of the trace, before its first message.
    pub(super) classes: Option<Vec<u8>>,
}

/// Prints a message, and before it the classes of its trace.
type Print<'p> = dyn FnMut(Option<Vec<u8>>, &[u8]) + 'p;

/// What is open of a stream.
#[derive(Debug)]
pub(super) struct StreamState {
    /// The text of its beginning, without a time, and what is printed for an unknown time.
    beginning: Vec<u8>,
    unknown: Vec<u8>,
    /// Whether a message with a time precedes the window.
    is_late: bool,
    /// Whether it has had a message with a time.
    is_timed: bool,
    /// Whether its messages have times.
    pub(super) has_clock: bool,
    /// The text of the beginning of its packet, without a time.
    packet: Option<Vec<u8>>,
    has_ended: bool,
}

impl StreamState {
    pub(super) fn new(beginning: Vec<u8>, unknown: Vec<u8>, has_clock: bool) -> StreamState {
        StreamState {
            beginning,
            unknown,
            is_late: false,
            is_timed: false,
            has_clock,
            packet: None,
            has_ended: false,
        }
    }
}

impl TraceWindow {
    pub(super) fn new(window: TimeWindow, classes: Option<Vec<u8>>) -> TraceWindow {
        TraceWindow {
            window,
            has_begun: window.from.is_none(),
            has_ended: false,
            streams: Vec::new(),
            classes,
        }
    }

    pub(super) fn add(&mut self, stream: usize) {
        self.streams.push(stream);
    }

    /// Whether streams begin at the beginning of the window.
    pub(super) fn is_late(&self) -> bool {
        self.window.from.is_some()
    }

    /// Whether no more is printed of the trace.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What is printed because the time is now `now`: the beginnings of streams and packets, and
    /// their ends.
    pub(super) fn advance(
        &mut self,
        now: i64,
        streams: &[StreamMessages<'_>],
        states: &mut [StreamState],
        print: &mut Print<'_>,
    ) {
        if let Some(from) = self
            .window
            .from
            .filter(|from| !self.has_begun && now >= *from)
        {
            self.has_begun = true;
            for number in &self.streams {
                let (Some(stream), Some(state)) = (streams.get(*number), states.get(*number))
                else {
                    continue;
                };
                if state.has_ended || !state.has_clock {
                    continue;
                }
                for text in std::iter::once(&state.beginning).chain(&state.packet) {
                    let time = if state.is_late {
                        stream.time_text(from)
                    } else {
                        state.unknown.clone()
                    };
                    print(self.classes.take(), &[&time[..], text].concat());
                }
            }
        }
        if self
            .window
            .to
            .is_some_and(|to| !self.has_ended && now >= to)
        {
            self.end(streams, states, print);
        }
    }

    fn end(
        &mut self,
        streams: &[StreamMessages<'_>],
        states: &mut [StreamState],
        print: &mut Print<'_>,
    ) {
        self.has_ended = true;
        let Some(last) = self.window.to.and_then(|to| to.checked_sub(1)) else {
            return;
        };
        if !self.has_begun {
            return;
        }
        for number in self.streams.iter().rev() {
            let (Some(stream), Some(state)) = (streams.get(*number), states.get_mut(*number))
            else {
                continue;
            };
            if std::mem::replace(&mut state.has_ended, true) || !state.has_clock {
                continue;
            }
            if state.packet.take().is_some() {
                let end = stream.time_text(last);
                print(None, &stream.ending(end, "Packet end\n"));
            }
            let end = if state.is_timed {
                stream.time_text(last)
            } else {
                state.unknown.clone()
            };
            print(None, &stream.ending(end, "Stream end\n"));
        }
    }

    /// Whether a message is printed. Notes what it begins or ends.
    pub(super) fn takes(&self, state: &mut StreamState, message: &MessageText<'_>) -> bool {
        state.is_timed |= message.is_timed;
        state.is_late |= message.is_timed && !self.has_begun;
        match message.kind {
            MessageKind::PacketBeginning => state.packet = Some(message.without_time.to_vec()),
            MessageKind::PacketEnd => state.packet = None,
            MessageKind::StreamEnd if self.has_ended && state.has_clock => return false,
            MessageKind::StreamEnd => state.has_ended = true,
            MessageKind::Other => {}
        }
        !state.has_clock || (self.has_begun && !self.has_ended)
    }
}
