//! Events of DFTracer text, from the decoder to the engine.

use std::ops::{ControlFlow, Range};

use trace_kinds::dft::{DftDecoder, DftVisitor, Metadata, Part, Prefilter, Shapes};
use trace_kinds::{EachEvent, Event, OriginFields};

use crate::source::Counters;

/// Decodes text, passes its events on and counts its records.
pub(super) struct Events<'e, 'f> {
    pub(super) decoder: &'e DftDecoder,
    pub(super) each: &'e mut EachEvent<'f>,
    pub(super) counters: Counters,
    /// Selects the lines that must be decoded, if others may be skipped.
    pub(super) prefilter: Option<Prefilter>,
    /// The requested fields that describe the file.
    pub(super) origin: OriginFields,
}

impl Events<'_, '_> {
    /// Passes on the events of complete lines.
    pub(super) fn walk(&mut self, text: &[u8]) -> ControlFlow<()> {
        let (decoder, counters) = (self.decoder, &mut self.counters);
        let mut visitor = EventVisitor {
            each: &mut *self.each,
            origin: Some(&self.origin).filter(|origin| !origin.is_empty()),
            flow: ControlFlow::Continue(()),
        };
        let mut shapes = Shapes::default();
        let mut run = |lines: &[u8]| {
            counters.decoded += decoder.walk_shaped(lines, &mut shapes, &mut visitor);
            visitor.flow
        };
        match &self.prefilter {
            Some(prefilter) => prefilter.runs(text, run),
            None => run(text),
        }
    }

    /// Passes on the events of a part of streamed text.
    pub(super) fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        match part {
            Part::Lines(text) => {
                self.counters.decoded_bytes += text.len() as u64;
                self.walk(text)
            }
            Part::Skipped(len, ends) => {
                self.counters.decoded_bytes += len;
                self.counters.decoded.broken += u64::from(ends);
                ControlFlow::Continue(())
            }
        }
    }
}

struct EventVisitor<'e, 'f> {
    each: &'e mut EachEvent<'f>,
    origin: Option<&'e OriginFields>,
    flow: ControlFlow<()>,
}

impl DftVisitor for EventVisitor<'_, '_> {
    #[inline]
    fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
        self.flow = match self.origin {
            None => (self.each)(event),
            Some(origin) => (self.each)(&origin.with(event)),
        };
        self.flow
    }

    fn metadata(&mut self, _: Metadata) {}
}
