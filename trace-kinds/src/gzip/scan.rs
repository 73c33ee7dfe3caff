//! The scanner, which reads a gzip file in one pass.

use std::io::Read;
use std::ops::ControlFlow;

use super::entry::Entry;
use super::header::{MEMBER_BYTES_MIN, header_len};
use super::inflater::Inflater;
use super::probe::{PROBE_INPUT_BYTES, PROBE_TEXT_BYTES, Probe};
use super::stream::{StepState, Stream};
use super::text::TextBuffer;
use super::{GzipError, WHOLE_TEXT_BYTES_MAX, WINDOW_BYTES};

/// Limit on the compressed bytes that are read ahead to find the end of a member.
const AHEAD_BYTES_MAX: usize = 8 << 20;
const READ_BYTES: usize = 256 << 10;
/// Text of a streamed member that is passed on at a time.
const STREAM_TEXT_BYTES: usize = 1 << 20;

/// Steps without progress after which a member counts as torn: a pause at a block may be one, and
/// running out of space another.
const IDLE_STEPS_MAX: u32 = 3;

/// How a file is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// The least text between entries; smaller members share one entry. `None` finds no entries
    /// inside members and has no cost.
    pub spacing_bytes: Option<u64>,
}

/// Receives the text of a file.
pub trait TextSink {
    /// Inflating can start here; the next text is the first of this entry.
    fn entry(&mut self, entry: Entry);

    /// The next text. `Break` ends the scan.
    fn text(&mut self, text: &[u8]) -> ControlFlow<()>;
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scanned {
    /// Bytes of text.
    pub text_len: u64,
    /// Bytes of the file that were read.
    pub file_len: u64,
    /// Where and why the file cannot be read to its end: a member that was torn when its writer was
    /// killed, or damage. The text before it was passed on.
    pub fault: Option<(u64, &'static str)>,
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
    /// # Errors
    ///
    /// When the source cannot be read. Damage is not an error: see [`Scanned::fault`].
    pub fn scan<R: Read, S: TextSink>(
        &mut self,
        source: R,
        options: ScanOptions,
        sink: &mut S,
    ) -> Result<Scanned, GzipError> {
        self.input.clear();
        let mut scan = Scan {
            input: Input {
                source,
                bytes: &mut self.input,
                at: 0,
                offset: 0,
                ended: false,
            },
            inflater: &mut self.inflater,
            text: &mut self.text,
            options,
            scanned: Scanned::default(),
            entry_at: None,
        };
        while scan.member(sink)?.is_continue() {}
        scan.scanned.file_len = scan.input.position();
        Ok(scan.scanned)
    }
}

/// The bytes of the file around the current position.
struct Input<'b, R> {
    source: R,
    bytes: &'b mut Vec<u8>,
    /// The current position in `bytes`.
    at: usize,
    /// Offset in the file of the first of `bytes`.
    offset: u64,
    ended: bool,
}

impl<R: Read> Input<'_, R> {
    fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Reads until `len` bytes are available or the file ends.
    fn fill(&mut self, len: usize) -> Result<(), GzipError> {
        if self.rest().len() >= len || self.ended {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        while self.bytes.len() < len && !self.ended {
            let filled = self.bytes.len();
            self.bytes.resize(filled + READ_BYTES.max(len - filled), 0);
            let read = self.source.read(&mut self.bytes[filled..]);
            let read = match read {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    self.bytes.truncate(filled);
                    continue;
                }
                Err(source) => {
                    return Err(GzipError::Read {
                        offset: self.offset + filled as u64,
                        source,
                    });
                }
            };
            self.bytes.truncate(filled + read);
            self.ended = read == 0;
        }
        Ok(())
    }
}

/// The text of a streamed member: the window, which was passed on, and text that was not yet.
struct StreamText {
    bytes: Vec<u8>,
    /// First byte that is text of this member.
    start: usize,
    passed_on: usize,
    filled: usize,
}

impl StreamText {
    fn new() -> StreamText {
        let bytes = vec![0; WINDOW_BYTES + STREAM_TEXT_BYTES];
        StreamText {
            bytes,
            start: WINDOW_BYTES,
            passed_on: WINDOW_BYTES,
            filled: WINDOW_BYTES,
        }
    }

    fn space(&self) -> usize {
        self.bytes.len() - self.filled
    }

    fn space_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Adds the first `len` bytes of the space to the text.
    fn advance(&mut self, len: usize) -> &[u8] {
        self.filled += len;
        &self.bytes[self.filled - len..self.filled]
    }

    /// The text that was not passed on yet.
    fn take(&mut self) -> &[u8] {
        let new = &self.bytes[self.passed_on..self.filled];
        self.passed_on = self.filled;
        new
    }

    fn window(&self) -> &[u8] {
        &self.bytes[self.start.max(self.filled - WINDOW_BYTES)..self.filled]
    }

    /// Discards all text but the window.
    fn discard(&mut self) {
        assert!(
            self.passed_on == self.filled,
            "a probe is opened only if there is space for its text"
        );
        self.start = self.start.saturating_sub(self.filled - WINDOW_BYTES);
        self.bytes.copy_within(self.filled - WINDOW_BYTES.., 0);
        (self.passed_on, self.filled) = (WINDOW_BYTES, WINDOW_BYTES);
    }
}

struct Scan<'b, R> {
    input: Input<'b, R>,
    inflater: &'b mut Inflater,
    text: &'b mut TextBuffer,
    options: ScanOptions,
    scanned: Scanned,
    /// Offset in the text of the last entry.
    entry_at: Option<u64>,
}

impl<R: Read> Scan<'_, R> {
    fn fault(&mut self, reason: &'static str) -> ControlFlow<()> {
        self.scanned.fault = Some((self.input.position(), reason));
        ControlFlow::Break(())
    }

    /// Scans the member at the current position.
    fn member<S: TextSink>(&mut self, sink: &mut S) -> Result<ControlFlow<()>, GzipError> {
        self.skip_padding()?;
        if self.input.rest().is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        self.input.fill(MEMBER_BYTES_MIN)?;
        while header_len(self.input.rest()).is_none() {
            let known = self.input.rest().len();
            self.input.fill(known + READ_BYTES)?;
            let no_more = self.input.rest().len() == known || known > AHEAD_BYTES_MAX;
            if no_more && header_len(self.input.rest()).is_none() {
                return Ok(self.fault("the following bytes are not a gzip member"));
            }
        }
        let start = self.input.position();
        match self.whole_member(sink)? {
            Some(flow) => Ok(flow),
            None => {
                // Inflating to an entry inside a member may start at that member.
                self.member_entry(start, 0, sink);
                let flow = self.streamed_member(sink);
                // A piece that starts inside a member ends with it.
                self.entry_at = None;
                flow
            }
        }
    }

    /// Zero bytes between members are padding.
    fn skip_padding(&mut self) -> Result<(), GzipError> {
        loop {
            self.input.fill(1)?;
            let rest = self.input.rest();
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            let all = zeros == rest.len();
            self.input.at += zeros;
            if !all || zeros == 0 {
                return Ok(());
            }
        }
    }

    /// Adds an entry for the member at `start`, unless the last one is nearer than `spacing`.
    fn member_entry<S: TextSink>(&mut self, start: u64, spacing: u64, sink: &mut S) {
        let text_offset = self.scanned.text_len;
        if self
            .entry_at
            .is_none_or(|last| text_offset - last >= spacing)
        {
            self.entry_at = Some(text_offset);
            sink.entry(Entry {
                bit_offset: start * 8,
                text_offset,
                window: None,
            });
        }
    }

    /// Inflates the member in one call, if it is small enough and its end is found.
    fn whole_member<S: TextSink>(
        &mut self,
        sink: &mut S,
    ) -> Result<Option<ControlFlow<()>>, GzipError> {
        let mut ahead = READ_BYTES;
        loop {
            self.input.fill(ahead)?;
            self.text.clear();
            let found = self.inflater.whole_member(
                self.input.rest(),
                self.input.ended,
                WHOLE_TEXT_BYTES_MAX,
                self.text,
            );
            if let Some(len) = found {
                let spacing = self.options.spacing_bytes.unwrap_or(0);
                self.member_entry(self.input.position(), spacing, sink);
                self.input.at += len;
                let text = self.text.text();
                self.scanned.text_len += text.len() as u64;
                return Ok(Some(sink.text(text)));
            }
            if self.input.ended || ahead >= AHEAD_BYTES_MAX {
                return Ok(None);
            }
            ahead *= 4;
        }
    }

    /// Streams the member, and finds entries inside.
    fn streamed_member<S: TextSink>(&mut self, sink: &mut S) -> Result<ControlFlow<()>, GzipError> {
        let mut stream = Stream::at_member();
        let mut text = StreamText::new();
        let mut probe: Option<Probe> = None;
        let mut idle = 0;
        loop {
            self.input.fill(PROBE_INPUT_BYTES)?;
            let to_block = probe.is_none() && text.space() > PROBE_TEXT_BYTES && self.wants_entry();
            let step = stream.step(self.input.rest(), text.space_mut(), to_block);
            self.input.at += step.consumed;
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
            if probe.is_none() && sink.text(text.take()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            match step.state {
                StepState::Ended => return Ok(ControlFlow::Continue(())),
                StepState::Damaged => return Ok(self.fault("the compressed data is damaged")),
                StepState::Paused if stuck => {
                    return Ok(self.fault("the file ends inside a member"));
                }
                StepState::Paused => {}
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

    fn wants_entry(&self) -> bool {
        match (self.options.spacing_bytes, self.entry_at) {
            (Some(spacing), Some(last)) => self.scanned.text_len - last >= spacing,
            _ => false,
        }
    }

    /// Starts the search for the bit at which the next block starts.
    fn probe(&mut self, window: &[u8]) -> Result<Option<Probe>, GzipError> {
        if self.input.at == 0 {
            return Ok(None);
        }
        // The last consumed byte is needed as well.
        self.input.at -= 1;
        self.input.fill(PROBE_INPUT_BYTES)?;
        let rest = self.input.rest();
        let input = rest[..rest.len().min(PROBE_INPUT_BYTES)].to_vec();
        self.input.at += 1;
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
            self.entry_at = Some(probe.text_offset);
            sink.entry(Entry {
                bit_offset,
                text_offset: probe.text_offset,
                window,
            });
        }
    }
}
