//! The scanner, which reads a gzip file in one pass.

use std::io::Read;
use std::ops::ControlFlow;

use super::damage::{DamageReason, GzipDamage};
use super::entry::Entry;
use super::header::{Header, MEMBER_BYTES_MIN, header_of};
use super::inflater::Inflater;
use super::input::{Input, READ_BYTES};
use super::probe::{PROBE_INPUT_BYTES, PROBE_TEXT_BYTES, Probe};
use super::stream::{StepState, Stream};
use super::stream_text::StreamText;
use super::text::TextBuffer;
use super::{GzipError, WHOLE_TEXT_BYTES_MAX};

/// Limit on the compressed bytes that are read ahead to find the end of a member.
const AHEAD_BYTES_MAX: usize = 8 << 20;
/// Limit on the compressed bytes of a member whose text is withheld until it is verified.
const WITHHELD_BYTES_MAX: u64 = 64 << 20;
/// Damaged long members after which no other is passed on: each costs one more scan.
const DAMAGED_LONG_MAX: usize = 16;
/// Steps without progress after which a member counts as torn: a pause at a block may be one, and
/// running out of space another.
const IDLE_STEPS_MAX: u32 = 3;

/// How a file is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanOptions<'d> {
    /// The least text between entries; smaller members share one entry. `None` finds no entries
    /// inside members and has no cost.
    pub spacing_bytes: Option<u64>,
    /// Offsets of long members that are known to be damaged: see [`Scanned::unverified`].
    pub damaged: &'d [u64],
    /// Whether the scan ends before a long member: see [`Scanned::long_member`].
    pub stops_at_long_member: bool,
    /// The longest text of a member that is inflated in one call, without entries inside; `None`
    /// for [`WHOLE_TEXT_BYTES_MAX`].
    pub whole_text_bytes_max: Option<usize>,
    /// Whether the source is only the start of a file: that it ends inside a member is expected.
    pub is_start_of_file: bool,
}

/// Receives the text of a file.
pub trait TextSink {
    /// Inflating can start here; the next text is the first of this entry.
    fn entry(&mut self, entry: Entry);

    /// The next text. `Break` ends the scan.
    fn text(&mut self, text: &[u8]) -> ControlFlow<()>;

    /// Text is missing here: what follows does not continue the text before.
    fn gap(&mut self);
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scanned {
    /// Bytes of text.
    pub text_len: u64,
    /// Bytes of the file that were read.
    pub file_len: u64,
    /// What of the file was skipped or is unverified, in the order of the file.
    pub damage: Vec<GzipDamage>,
    /// The offset of a damaged member whose text was passed on, because it is too long to be
    /// withheld until it is verified. The scan ended, and all of its text must be discarded; to
    /// read the file without this member, scan it again with the offset in
    /// [`ScanOptions::damaged`].
    pub unverified: Option<u64>,
    /// The offset of a long member before which the scan ended, because
    /// [`ScanOptions::stops_at_long_member`] is set.
    pub long_member: Option<u64>,
}

/// Scans gzip files. Reuses its working memory, because new memory of the size of a member costs a
/// twentieth of inflating it.
#[derive(Default)]
pub struct Scanner {
    inflater: Inflater,
    text: TextBuffer,
    input: Vec<u8>,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").finish_non_exhaustive()
    }
}

impl Scanner {
    /// Inflates all of `source` into `sink`, in memory bounded by the largest member that is
    /// inflated in one call.
    ///
    /// The text of a member is passed on after its checksum was verified, unless it is longer than
    /// [`WHOLE_TEXT_BYTES_MAX`]: see [`Scanned::unverified`]. Damaged members are skipped.
    ///
    /// # Errors
    ///
    /// When the source cannot be read. Damage is not an error: see [`Scanned::damage`].
    pub fn scan<R: Read, S: TextSink>(
        &mut self,
        source: R,
        options: ScanOptions<'_>,
        sink: &mut S,
    ) -> Result<Scanned, GzipError> {
        let mut scan = Scan {
            input: Input::new(source, &mut self.input),
            inflater: &mut self.inflater,
            text: &mut self.text,
            options,
            scanned: Scanned::default(),
            entry_at: None,
            withheld: None,
            candidates: 0,
        };
        while scan.member(sink)?.is_continue() {}
        scan.scanned.file_len = scan.input.position();
        Ok(scan.scanned)
    }
}

/// The end of an attempt to read a member.
pub(super) enum Outcome {
    /// Its text was passed on.
    Done(ControlFlow<()>),
    /// It is damaged; its text was discarded.
    Damaged,
    /// The file ends inside it; its text is withheld.
    Torn,
}

pub(super) struct Scan<'b, 'd, R> {
    pub(super) input: Input<'b, R>,
    pub(super) inflater: &'b mut Inflater,
    pub(super) text: &'b mut TextBuffer,
    pub(super) options: ScanOptions<'d>,
    pub(super) scanned: Scanned,
    /// Offset in the text of the last entry.
    pub(super) entry_at: Option<u64>,
    /// The entries of the member whose text is withheld in `text`, each with its offset there;
    /// `None` if text is passed on.
    pub(super) withheld: Option<Vec<(usize, Entry)>>,
    /// Places that looked like a member and are none.
    pub(super) candidates: u32,
}

impl<R: Read> Scan<'_, '_, R> {
    /// Scans the member at the current position.
    fn member<S: TextSink>(&mut self, sink: &mut S) -> Result<ControlFlow<()>, GzipError> {
        self.skip_padding()?;
        if self.input.rest().is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        let start = self.input.position();
        self.input.retain();
        match self.header()? {
            Header::Complete(_) => {}
            Header::Invalid => return self.resume(start, DamageReason::NotAMember, sink),
            Header::Incomplete => {
                self.skip_to_end()?;
                self.damage(start, DamageReason::Torn);
                return Ok(ControlFlow::Break(()));
            }
        }
        if self.options.damaged.contains(&start) {
            return self.resume(start, DamageReason::Member, sink);
        }
        match self.read_member(start, sink)? {
            Outcome::Done(flow) => Ok(flow),
            Outcome::Damaged => self.resume(start, DamageReason::Member, sink),
            Outcome::Torn => self.torn(start, sink),
        }
    }

    /// Zero bytes between members are padding.
    fn skip_padding(&mut self) -> Result<(), GzipError> {
        self.input.release();
        loop {
            self.input.fill(1)?;
            let rest = self.input.rest();
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            let all = zeros == rest.len();
            self.input.advance(zeros);
            if !all || zeros == 0 {
                return Ok(());
            }
        }
    }

    /// The header at the current position.
    fn header(&mut self) -> Result<Header, GzipError> {
        self.input.fill(MEMBER_BYTES_MIN)?;
        loop {
            let known = self.input.rest().len();
            match header_of(self.input.rest()) {
                Header::Incomplete if known > AHEAD_BYTES_MAX => return Ok(Header::Invalid),
                Header::Incomplete if !self.input.has_ended() => {
                    self.input.fill(known + READ_BYTES)?;
                }
                header => return Ok(header),
            }
        }
    }

    /// Reads the member at `start`, the current position.
    pub(super) fn read_member<S: TextSink>(
        &mut self,
        start: u64,
        sink: &mut S,
    ) -> Result<Outcome, GzipError> {
        if let Some(flow) = self.whole_member(sink)? {
            return Ok(Outcome::Done(flow));
        }
        self.text.clear();
        self.withheld = Some(Vec::new());
        let text_len = self.scanned.text_len;
        // Inflating to an entry inside a member may start at that member.
        self.member_entry(start, 0, sink);
        let outcome = self.streamed_member(start, sink)?;
        // A piece that starts inside a member ends with it.
        self.entry_at = None;
        match outcome {
            Outcome::Done(_) => {}
            Outcome::Damaged | Outcome::Torn => self.scanned.text_len = text_len,
        }
        Ok(outcome)
    }

    /// Adds an entry for the member at `start`, unless the last one is nearer than `spacing`.
    fn member_entry<S: TextSink>(&mut self, start: u64, spacing: u64, sink: &mut S) {
        let text_offset = self.scanned.text_len;
        if self
            .entry_at
            .is_none_or(|last| text_offset - last >= spacing)
        {
            let entry = Entry {
                bit_offset: start * 8,
                text_offset,
                window: None,
            };
            self.add_entry(entry, sink);
        }
    }

    fn add_entry<S: TextSink>(&mut self, entry: Entry, sink: &mut S) {
        self.entry_at = Some(entry.text_offset);
        match &mut self.withheld {
            Some(entries) => entries.push((self.text.text().len(), entry)),
            None => sink.entry(entry),
        }
    }

    /// Passes on the text and the entries that were withheld, and no longer withholds any.
    pub(super) fn pass_on<S: TextSink>(&mut self, sink: &mut S) -> ControlFlow<()> {
        self.input.release();
        let (text, mut from) = (self.text.text(), 0);
        for (at, entry) in self.withheld.take().unwrap_or_default() {
            if at > from {
                sink.text(&text[from..at])?;
            }
            sink.entry(entry);
            from = at;
        }
        sink.text(&text[from..])
    }

    /// Inflates the member in one call, if it is small enough and its end is found.
    fn whole_member<S: TextSink>(
        &mut self,
        sink: &mut S,
    ) -> Result<Option<ControlFlow<()>>, GzipError> {
        self.withheld = None;
        let mut ahead = READ_BYTES;
        let whole_text_bytes_max = self.options.whole_text_bytes_max;
        loop {
            self.input.fill(ahead)?;
            self.text.clear();
            let found = self.inflater.whole_member(
                self.input.rest(),
                self.input.has_ended(),
                whole_text_bytes_max.unwrap_or(WHOLE_TEXT_BYTES_MAX),
                self.text,
            );
            if let Some(len) = found {
                let spacing = self.options.spacing_bytes.unwrap_or(0);
                self.member_entry(self.input.position(), spacing, sink);
                self.input.advance(len);
                let text = self.text.text();
                self.scanned.text_len += text.len() as u64;
                return Ok(Some(sink.text(text)));
            }
            if self.input.has_ended() || ahead >= AHEAD_BYTES_MAX {
                return Ok(None);
            }
            ahead *= 4;
        }
    }

    /// Streams the member at `start`, and finds entries inside.
    fn streamed_member<S: TextSink>(
        &mut self,
        start: u64,
        sink: &mut S,
    ) -> Result<Outcome, GzipError> {
        let text_before = self.scanned.text_len;
        let mut stream = Stream::at_member();
        let mut text = StreamText::new();
        let mut probe: Option<Probe> = None;
        let mut idle = 0;
        loop {
            self.input.fill(PROBE_INPUT_BYTES)?;
            let to_block = probe.is_none() && text.space() > PROBE_TEXT_BYTES && self.wants_entry();
            let step = stream.step(self.input.rest(), text.space_mut(), to_block);
            self.input.advance(step.consumed);
            self.scanned.text_len += step.produced as u64;
            let new = text.advance(step.produced);
            if let Some(open) = &mut probe {
                let missing = PROBE_TEXT_BYTES - open.text.len();
                open.text.extend_from_slice(&new[..missing.min(new.len())]);
            }
            idle = if step.consumed == 0 && step.produced == 0 {
                idle + 1
            } else {
                0
            };
            let stuck = idle == IDLE_STEPS_MAX;
            let ended = step.state != StepState::Paused || stuck;
            let full = probe
                .as_ref()
                .is_some_and(|open| open.text.len() == PROBE_TEXT_BYTES);
            if (full || ended)
                && let Some(done) = probe.take()
            {
                self.probed(done, full || step.state == StepState::Ended, sink);
            }
            if probe.is_none()
                && let Some(flow) = self.stream_text(start, text_before, text.take(), sink)?
                && flow.is_break()
            {
                return Ok(Outcome::Done(flow));
            }
            if ended {
                return Ok(self.end_of_stream(start, text_before, step.state, sink));
            }
            // With space and input left, zlib paused because a block ended.
            if to_block && text.space() >= PROBE_TEXT_BYTES && !self.input.rest().is_empty() {
                probe = self.probe(text.window())?;
            }
            if text.space() == 0 {
                text.discard();
            }
        }
    }

    /// Withholds or passes on text of the member at `start`. `None` while it is withheld.
    fn stream_text<S: TextSink>(
        &mut self,
        start: u64,
        text_before: u64,
        text: &[u8],
        sink: &mut S,
    ) -> Result<Option<ControlFlow<()>>, GzipError> {
        if self.withheld.is_none() {
            return Ok(Some(sink.text(text)));
        }
        self.text.extend(text);
        let is_long = self.text.text().len() > WHOLE_TEXT_BYTES_MAX
            || self.input.retained_len() > WITHHELD_BYTES_MAX;
        if !is_long {
            return Ok(None);
        }
        if self.options.stops_at_long_member {
            self.scanned.long_member = Some(start);
            self.scanned.text_len = text_before;
            return Ok(Some(ControlFlow::Break(())));
        }
        if self.options.damaged.len() >= DAMAGED_LONG_MAX {
            self.scanned.text_len = text_before;
            sink.gap();
            return self.give_up(start).map(Some);
        }
        Ok(Some(self.pass_on(sink)))
    }

    /// The end of the member at `start`, which was streamed.
    fn end_of_stream<S: TextSink>(
        &mut self,
        start: u64,
        text_before: u64,
        state: StepState,
        sink: &mut S,
    ) -> Outcome {
        let is_withheld = self.withheld.is_some();
        let is_damaged = match state {
            StepState::Ended if is_withheld => return Outcome::Done(self.pass_on(sink)),
            StepState::Ended => return Outcome::Done(ControlFlow::Continue(())),
            StepState::Damaged => true,
            // The file ended.
            StepState::Paused => {
                !is_withheld && self.has_length_at_end(self.scanned.text_len - text_before)
            }
        };
        match (is_withheld, is_damaged) {
            (true, true) => {
                self.withheld = None;
                return Outcome::Damaged;
            }
            (true, false) => return Outcome::Torn,
            (false, true) => self.scanned.unverified = Some(start),
            (false, false) => self.damage(start, DamageReason::Torn),
        }
        Outcome::Done(ControlFlow::Break(()))
    }

    fn wants_entry(&self) -> bool {
        match (self.options.spacing_bytes, self.entry_at) {
            (Some(spacing), Some(last)) => self.scanned.text_len - last >= spacing,
            _ => false,
        }
    }

    /// Starts the search for the bit at which the next block starts.
    fn probe(&mut self, window: &[u8]) -> Result<Option<Probe>, GzipError> {
        self.input.fill(PROBE_INPUT_BYTES)?;
        // The last consumed byte is needed as well.
        let Some(rest) = self.input.with_last_byte() else {
            return Ok(None);
        };
        let input = rest[..rest.len().min(PROBE_INPUT_BYTES)].to_vec();
        Ok(Some(Probe {
            byte_offset: self.input.position(),
            text_offset: self.scanned.text_len,
            window: window.into(),
            input,
            text: Vec::with_capacity(PROBE_TEXT_BYTES),
        }))
    }

    /// Adds the entry that a probe found. `complete` says whether it has all text that can refer to
    /// its window.
    fn probed<S: TextSink>(&mut self, probe: Probe, complete: bool, sink: &mut S) {
        if probe.text.is_empty() {
            return;
        }
        let Some(bit_offset) = probe.bit_offset() else {
            return;
        };
        let window = if complete {
            probe.needed_window(bit_offset)
        } else {
            Some(probe.window)
        };
        if window.is_some() {
            let entry = Entry {
                bit_offset,
                text_offset: probe.text_offset,
                window,
            };
            self.add_entry(entry, sink);
        }
    }
}
