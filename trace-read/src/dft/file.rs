//! A DFTracer file as a source.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use trace_events::EachEvent;
use trace_events::dft::{DftDecoder, Names, TimeUnit};
use trace_events::gzip::{Entry, Piece, PieceEnd};
use trace_index::{Checkpoint, ColumnFilter, Window};
use trace_query::{BareUnit, FieldTable, Filter};

use super::columns::OpenColumns;
use super::head::{Head, begins_as_gzip, head_of};
use super::localize::localize;
use super::visit::Events;
use crate::beside::Unusable;
use crate::sidecar::OpenSidecar;
use crate::source::{ChunkSource, Counters, LocalFilter, Narrowed, Scratch, Task, first_ts};
use crate::{Evidence, Fetch, LocalFile, ReadError};

/// Text of a task of a file that has no index.
pub(super) const SLICE_BYTES: u64 = 8 << 20;

/// One trace file, with or without a sidecar.
pub struct DftFile {
    pub(super) path: PathBuf,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) len: u64,
    pub(super) gzip: bool,
    pub(super) unit: TimeUnit,
    pub(super) names: Names,
    pub(super) sidecar: Option<OpenSidecar>,
    /// Opened when they are first asked.
    columns: OnceLock<Option<OpenColumns>>,
    unused: Option<String>,
}

impl DftFile {
    /// Opens a file of this machine and, with `use_sidecar`, the sidecar beside it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read. A sidecar that cannot be used is told by
    /// [`ChunkSource::unused_index`].
    pub fn open(path: &Path, use_sidecar: bool) -> Result<DftFile, ReadError> {
        let place = path.display().to_string();
        let failed = |error| ReadError::fetch(&*place, error);
        let local = LocalFile::open(path).map_err(failed)?;
        let len = local.file().metadata().map_err(failed)?.len();
        let (mut sidecar, mut unused) = (None, None);
        if use_sidecar {
            match OpenSidecar::open(path) {
                Ok(open) => sidecar = Some(open),
                Err(Unusable::Missing) => {}
                Err(Unusable::Refused(reason)) => unused = Some(reason),
            }
        }
        let facts = match sidecar.as_ref().map(OpenSidecar::facts) {
            Some(Ok(Some(facts))) => Some(facts),
            Some(Ok(None)) => {
                unused = Some(format!("{place}.idx: another version wrote it"));
                None
            }
            Some(Err(error)) => {
                unused = Some(error.to_string());
                None
            }
            None => None,
        };
        // What belongs to a file knows its start, which takes long to inflate.
        let head = match facts {
            Some(facts) => Head {
                gzip: begins_as_gzip(&local, len)?,
                unit: facts.unit,
            },
            None => {
                sidecar = None;
                head_of(&local, len)?
            }
        };
        Ok(DftFile {
            path: path.to_owned(),
            fetch: Arc::new(local),
            len,
            gzip: head.gzip,
            unit: head.unit,
            names: Names::default(),
            sidecar,
            columns: OnceLock::new(),
            unused,
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, error: std::io::Error) -> ReadError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return ReadError::Shrunk {
                place: self.fetch.place(),
            };
        }
        ReadError::fetch(self.fetch.place(), error)
    }

    pub(super) fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        self.fetch
            .fetch_one(range)
            .map_err(|error| self.failed(error))
    }

    fn decoder(&self, fields: &FieldTable) -> DftDecoder {
        DftDecoder::new(fields, self.names.clone(), self.unit)
    }

    /// The pieces of a compressed file.
    fn pieces<'s>(&self, sidecar: &'s OpenSidecar) -> Vec<PieceAt<'s>> {
        let checkpoints = sidecar.index().checkpoints();
        let text_len = sidecar
            .index()
            .chunks()
            .last()
            .map_or(0, |c| c.raw_offset + c.raw_length);
        let piece = |(at, checkpoint): (usize, &'s Checkpoint)| {
            let next = checkpoints.get(at + 1);
            let end = match next {
                Some(next) if next.window != Window::Member => PieceEnd::Block {
                    bit_offset: bit_offset(next),
                },
                Some(next) => PieceEnd::Member {
                    byte_offset: next.offset,
                },
                None => PieceEnd::Member {
                    byte_offset: self.len,
                },
            };
            let raw_end = next.map_or(text_len, |next| next.raw_offset);
            PieceAt {
                checkpoint,
                end,
                raw: checkpoint.raw_offset..raw_end.max(checkpoint.raw_offset),
            }
        };
        checkpoints.iter().enumerate().map(piece).collect()
    }

    /// Reads chunks of a compressed file that begin in one piece.
    fn read_pieces(
        &self,
        sidecar: &OpenSidecar,
        chunks: &[usize],
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let all = sidecar.index().chunks();
        let ranges: Vec<Range<u64>> = chunks
            .iter()
            .filter_map(|number| all.get(*number))
            .map(|chunk| chunk.raw_offset..chunk.raw_offset + chunk.raw_length)
            .collect();
        let Some((first, last)) = ranges.first().zip(ranges.last()) else {
            return Ok(());
        };
        let pieces = self.pieces(sidecar);
        let at = pieces.partition_point(|piece| piece.raw.start <= first.start);
        let Some((piece, behind)) = at.checked_sub(1).and_then(|at| pieces[at..].split_first())
        else {
            return Err(ReadError::Shrunk {
                place: self.fetch.place(),
            });
        };
        if piece.raw.end - piece.raw.start > PIECE_BYTES_MAX {
            return super::scan::read_ranges(self, &ranges, events);
        }
        match self.inflate_lines(sidecar, (piece, behind), last.end, scratch, events) {
            // Without the history of the piece the text is reached from the begin of the file.
            Err(error) if error.is_of_index() => {
                events.counters.damaged.push(error.line());
                return super::scan::read_ranges(self, &ranges, events);
            }
            done => done?,
        }
        events.counters.decoded_bytes += ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        for range in ranges {
            let place = |at: u64| usize::try_from(at - piece.raw.start).unwrap_or(usize::MAX);
            let text = scratch
                .text
                .text()
                .get(place(range.start)..place(range.end));
            let text = text.ok_or_else(|| ReadError::Shrunk {
                place: self.fetch.place(),
            })?;
            if events.walk(text).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Inflates a piece into the scratch text, and of those behind it as much as the text up to
    /// `text_end` needs.
    fn inflate_lines(
        &self,
        sidecar: &OpenSidecar,
        (piece, behind): (&PieceAt<'_>, &[PieceAt<'_>]),
        text_end: u64,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        self.inflate(sidecar, piece, scratch, events)?;
        let mut end = piece.raw.end;
        for next in behind {
            if end >= text_end {
                break;
            }
            let wanted = text_end.min(next.raw.end) - next.raw.start;
            self.inflate_start(sidecar, next, wanted, scratch, events)?;
            end = next.raw.start + wanted;
        }
        Ok(())
    }

    /// Inflates a piece into the scratch text.
    fn inflate(
        &self,
        sidecar: &OpenSidecar,
        at: &PieceAt<'_>,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let entry = self.entry(sidecar, at.checkpoint, events)?;
        let piece = at.piece(&entry);
        let bytes = self.fetch(entry.byte_offset()..piece.end.byte_offset())?;
        events.counters.fetched_bytes += bytes.len() as u64;
        scratch
            .inflater
            .piece(&piece, &bytes, &mut scratch.text)
            .map_err(|source| ReadError::Gzip {
                place: self.fetch.place(),
                source,
            })
    }

    /// Appends the first `wanted` bytes of a piece to the scratch text: the rest of a line that
    /// began in the piece before.
    fn inflate_start(
        &self,
        sidecar: &OpenSidecar,
        at: &PieceAt<'_>,
        wanted: u64,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let entry = self.entry(sidecar, at.checkpoint, events)?;
        let piece = at.piece(&entry);
        let start = scratch.text.text().len();
        let too_long = |_| ReadError::Shrunk {
            place: self.fetch.place(),
        };
        let wanted = usize::try_from(wanted).map_err(too_long)?;
        let available = piece.end.byte_offset() - entry.byte_offset();
        let mut len = START_BYTES;
        loop {
            let bytes =
                self.fetch(entry.byte_offset()..entry.byte_offset() + len.min(available))?;
            events.counters.fetched_bytes += bytes.len() as u64;
            scratch.text.truncate(start);
            scratch
                .inflater
                .prefix(&piece, &bytes, wanted, &mut scratch.text);
            if scratch.text.text().len() - start == wanted {
                return Ok(());
            }
            if len >= available {
                return Err(ReadError::Shrunk {
                    place: self.fetch.place(),
                });
            }
            len *= 8;
        }
    }

    /// The entry of a checkpoint, its window fetched.
    fn entry(
        &self,
        sidecar: &OpenSidecar,
        checkpoint: &Checkpoint,
        events: &mut Events<'_, '_>,
    ) -> Result<Entry, ReadError> {
        let window = match &checkpoint.window {
            Window::Member => None,
            Window::Loaded(window) => Some(window.as_slice().into()),
            Window::Stored(stored) => {
                let place = sidecar.fetch.place();
                let range = stored.offset..stored.offset + u64::from(stored.length);
                let bytes = sidecar
                    .fetch
                    .fetch_one(range)
                    .map_err(|error| ReadError::fetch(&*place, error))?;
                events.counters.fetched_bytes += bytes.len() as u64;
                let window = stored
                    .load(&bytes)
                    .map_err(|source| ReadError::Window { place, source })?;
                Some(window.into())
            }
        };
        let text_offset = checkpoint.raw_offset;
        Ok(Entry {
            bit_offset: bit_offset(checkpoint),
            text_offset,
            window,
        })
    }

    /// Reads the lines that begin in a range of a plain file that has no index.
    fn read_slice(&self, range: Range<u64>, events: &mut Events<'_, '_>) -> Result<(), ReadError> {
        // A line begins behind a line end, so the byte in front of the range is asked as well.
        let start = range.start.saturating_sub(1);
        let mut text = self.fetch(start..range.end)?;
        let begin = match range.start {
            0 => 0,
            _ => match memchr::memchr(b'\n', &text) {
                Some(newline) => newline + 1,
                None => return Ok(()),
            },
        };
        if begin == text.len() {
            return Ok(());
        }
        let mut end = range.end;
        while !text.ends_with(b"\n") && end < self.len {
            let more = self.fetch(end..self.len.min(end + START_BYTES))?;
            end += more.len() as u64;
            let line_end = memchr::memchr(b'\n', &more).map_or(more.len(), |newline| newline + 1);
            text.extend_from_slice(&more[..line_end]);
            if text.len() as u64 > SLICE_BYTES + trace_events::dft::LINE_BYTES_MAX as u64 {
                break;
            }
        }
        events.counters.fetched_bytes += end - start;
        events.counters.decoded_bytes += (text.len() - begin) as u64;
        let _all = events.walk(&text[begin..]);
        Ok(())
    }
}

/// Longer pieces are not inflated into memory but streamed.
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Compressed bytes in which the rest of a line is looked for first.
const START_BYTES: u64 = 64 << 10;

fn bit_offset(checkpoint: &Checkpoint) -> u64 {
    (checkpoint.offset * 8).saturating_sub(u64::from(checkpoint.bits))
}

/// A piece, its window still in the sidecar.
struct PieceAt<'s> {
    checkpoint: &'s Checkpoint,
    end: PieceEnd,
    raw: Range<u64>,
}

impl PieceAt<'_> {
    fn piece<'e>(&self, entry: &'e Entry) -> Piece<'e> {
        Piece {
            entry,
            end: self.end,
            text_len: self.raw.end - self.raw.start,
        }
    }
}

impl ChunkSource for DftFile {
    fn place(&self) -> String {
        self.fetch.place()
    }

    fn unit(&self) -> BareUnit {
        // At most a billion.
        BareUnit::Nanos(self.unit.nanoseconds() as u32)
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        match &self.sidecar {
            None => Ok(None),
            Some(open) => Ok(Some(Evidence::Sidecar {
                sidecar: open.sidecar(),
                fetch: Arc::clone(&open.fetch),
                fetched_bytes: open.fetched_bytes,
                cache: None,
            })),
        }
    }

    fn unused_index(&self) -> Option<String> {
        self.unused.clone()
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.names)
    }

    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task> {
        match (&self.sidecar, chunks) {
            (Some(sidecar), Some(chunks)) => self.indexed_tasks(sidecar, chunks),
            _ if self.len == 0 => Vec::new(),
            _ if self.gzip => vec![Task {
                chunks: vec![0],
                first_ts: None,
                bytes: self.len * 8,
                records: None,
            }],
            _ => (0..self.len.div_ceil(SLICE_BYTES))
                .filter_map(|slice| {
                    let bytes = SLICE_BYTES.min(self.len - slice * SLICE_BYTES);
                    let chunks = vec![usize::try_from(slice).ok()?];
                    Some(Task {
                        chunks,
                        first_ts: None,
                        bytes,
                        records: None,
                    })
                })
                .collect(),
        }
    }

    fn reads_records(&self) -> bool {
        true
    }

    fn has_columns(&self) -> bool {
        self.sidecar.is_some()
    }

    fn narrow(&self, task: &Task, filter: &ColumnFilter) -> Option<Narrowed> {
        let sidecar = self.sidecar.as_ref()?;
        let mut damaged = None;
        let open = self.columns.get_or_init(|| {
            OpenColumns::open(&self.path, sidecar.index()).unwrap_or_else(|reason| {
                damaged = Some(reason);
                None
            })
        });
        let mut narrowed = match open {
            Some(columns) => columns.narrow(&task.chunks, filter),
            None => Narrowed {
                unknown: task.chunks.clone(),
                ..Narrowed::default()
            },
        };
        narrowed.counters.damaged.extend(damaged);
        Some(narrowed)
    }

    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let decoder = self.decoder(fields);
        let mut events = Events {
            decoder: &decoder,
            each,
            counters: Counters::default(),
        };
        if let Some(records) = &task.records {
            events.counters.decoded_bytes += records.len() as u64;
            let _all = events.walk(records);
            return Ok(events.counters);
        }
        match (&self.sidecar, task.chunks.as_slice()) {
            (Some(sidecar), chunks) if self.gzip => {
                self.read_pieces(sidecar, chunks, scratch, &mut events)?;
            }
            (Some(sidecar), chunks) => {
                for chunk in chunks
                    .iter()
                    .filter_map(|at| sidecar.index().chunks().get(*at))
                {
                    let text = self.fetch(chunk.raw_offset..chunk.raw_offset + chunk.raw_length)?;
                    events.counters.fetched_bytes += text.len() as u64;
                    events.counters.decoded_bytes += text.len() as u64;
                    if events.walk(&text).is_break() {
                        break;
                    }
                }
            }
            (None, _) if self.gzip => super::scan::read_all(self, &mut events)?,
            (None, slices) => {
                for slice in slices {
                    let start = *slice as u64 * SLICE_BYTES;
                    self.read_slice(start..self.len.min(start + SLICE_BYTES), &mut events)?;
                }
            }
        }
        Ok(events.counters)
    }
}

impl DftFile {
    /// One task a piece of a compressed file, so that each is inflated once; one a chunk of a
    /// plain one.
    fn indexed_tasks(&self, sidecar: &OpenSidecar, chunks: &[usize]) -> Vec<Task> {
        let checkpoints = sidecar.index().checkpoints();
        let mut tasks: Vec<(usize, Task)> = Vec::new();
        for number in chunks {
            let Some(chunk) = sidecar.index().chunks().get(*number) else {
                continue;
            };
            let piece = match self.gzip {
                true => checkpoints.partition_point(|c| c.raw_offset <= chunk.raw_offset),
                false => *number,
            };
            let first_ts = first_ts(chunk);
            match tasks.last_mut() {
                Some((last, task)) if *last == piece => {
                    task.chunks.push(*number);
                    task.first_ts = task.first_ts.zip(first_ts).map(|(a, b)| a.min(b));
                    task.bytes += chunk.raw_length;
                }
                _ => {
                    let chunks = vec![*number];
                    tasks.push((
                        piece,
                        Task {
                            chunks,
                            first_ts,
                            bytes: chunk.raw_length,
                            records: None,
                        },
                    ));
                }
            }
        }
        tasks.into_iter().map(|(_, task)| task).collect()
    }
}
