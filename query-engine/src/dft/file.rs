//! A DFTracer file as a source.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use chunk_index::{ColumnFilter, DftDamage};
use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::dft::{DftDecoder, LINE_BYTES_MAX, Names, Prefilter, TimeUnit};
use trace_kinds::gzip::{GzipDamage, Scanner};
use trace_kinds::{EachEvent, Origin, OriginFields};

use super::columns::OpenColumns;
use super::damage::{damage_of, damage_text};
use super::events::Events;
use super::hash_filter::localize;
use super::hash_names::{TextLimits, unit_of};
use super::head::{Head, begins_as_gzip, head_of};
use super::scan::{self, Text, fetch_text};
use crate::evidence::EVERYTHING;
use crate::open_sidecar::OpenSidecar;
use crate::packet_files::packet_file::origin;
use crate::sidecar_file::Unusable;
use crate::source::{ChunkSource, Counters, LocalFilter, Narrowed, Scratch, Task, first_ts};
use crate::{Evidence, Fetch, LocalFile, ReadError};

/// Bytes of text of a task of a file without an index.
pub(super) const SLICE_BYTES: u64 = 8 << 20;

/// One trace file, with or without a sidecar.
pub struct DftFile {
    pub(super) path: PathBuf,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) len: u64,
    pub(super) gzip: bool,
    pub(super) unit: TimeUnit,
    /// Whether a record declares the unit, as far as that matters.
    is_unit_declared: bool,
    pub(super) names: Names,
    origin: Origin,
    /// Limits of the texts of its hashes; `None` if unknown.
    pub(super) texts: Option<TextLimits>,
    pub(super) sidecar: Option<OpenSidecar>,
    /// Opened at the first use.
    columns: OnceLock<Option<OpenColumns>>,
    unused: Option<String>,
    /// Damage according to the sidecar.
    damage: Vec<GzipDamage>,
    /// Lines that are not records, according to the sidecar.
    unreadable: Option<u64>,
    /// Why the rest of it is missing.
    fault: Option<String>,
}

impl DftFile {
    /// Opens a file and, with `use_sidecar`, the sidecar next to it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read. [`ChunkSource::unused_index`] says why a sidecar is not used.
    pub fn open(path: &Path, use_sidecar: bool) -> Result<DftFile, ReadError> {
        let local = LocalFile::open(path);
        let local = local.map_err(|error| ReadError::fetch(path.display().to_string(), error))?;
        DftFile::of(path, local, use_sidecar)
    }

    /// A copy of `path`, which can be read only from its start; `fault` says why the rest is
    /// missing.
    ///
    /// # Errors
    ///
    /// When the copy cannot be read.
    pub(crate) fn copied(
        path: &Path,
        copy: LocalFile,
        fault: Option<String>,
    ) -> Result<DftFile, ReadError> {
        Ok(DftFile {
            fault,
            ..DftFile::of(path, copy, false)?
        })
    }

    fn of(path: &Path, local: LocalFile, use_sidecar: bool) -> Result<DftFile, ReadError> {
        let place = path.display().to_string();
        let failed = |error| ReadError::fetch(&*place, error);
        let len = local.file().metadata().map_err(failed)?.len();
        let (mut sidecar, mut unused) = (None, None);
        if use_sidecar {
            match OpenSidecar::open(path) {
                Ok(open) => sidecar = Some(open),
                Err(Unusable::Missing) => {}
                Err(Unusable::Refused(reason)) => unused = Some(reason),
            }
        }
        let facts = match sidecar.as_ref().map(OpenSidecar::dft_facts) {
            Some(Ok(Some(facts))) => Some(facts),
            Some(Ok(None)) => {
                unused = Some(format!("{place}.idx: it was written by another version"));
                None
            }
            Some(Err(error)) => {
                unused = Some(error.to_string());
                None
            }
            None => None,
        };
        let mut damage = Vec::new();
        if let Some(open) = sidecar.as_ref().filter(|_| facts.is_some()) {
            let stored = open.attachment(DftDamage::NAME)?;
            damage = damage_of(stored);
        }
        // The facts include what is read from the start of a file, which takes long to decompress.
        let head = match &facts {
            // Where nothing is damaged, nobody asks whether the unit was declared.
            Some(facts) if damage.is_empty() || unit_of(facts.unit) != TimeUnit::default() => {
                Head {
                    gzip: begins_as_gzip(&local, len)?,
                    unit: unit_of(facts.unit),
                    is_declared: true,
                }
            }
            Some(_) => head_of(&local, len, &mut Scanner::default())?,
            None => {
                sidecar = None;
                head_of(&local, len, &mut Scanner::default())?
            }
        };
        Ok(DftFile {
            path: path.to_owned(),
            fetch: Arc::new(local),
            len,
            gzip: head.gzip,
            unit: head.unit,
            is_unit_declared: head.is_declared,
            names: Names::default(),
            origin: origin(Kind::Dft, path),
            unreadable: facts.as_ref().map(|facts| facts.broken),
            texts: facts.map(|facts| TextLimits(facts.text_limits)),
            sidecar,
            columns: OnceLock::new(),
            unused,
            damage,
            fault: None,
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        fetch_text(&*self.fetch, range)
    }

    /// The file, to be read from its start.
    pub(super) fn text(&self) -> Text<'_> {
        Text {
            fetch: &*self.fetch,
            len: self.len,
            gzip: self.gzip,
            unit: self.unit,
            is_unit_declared: self.is_unit_declared,
        }
    }

    fn decoder(&self, fields: &FieldTable) -> DftDecoder {
        DftDecoder::new(fields, self.names.clone(), self.unit)
    }

    /// Reads the lines that start in a range of an uncompressed file without an index.
    fn read_slice(&self, range: Range<u64>, events: &mut Events<'_, '_>) -> Result<(), ReadError> {
        // A line starts after a line end, so the byte before the range is read as well.
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
            let is_complete = text.ends_with(b"\n") || end >= self.len;
            if !is_complete && text.len() as u64 > SLICE_BYTES + LINE_BYTES_MAX as u64 {
                // The line is too long to be a record. No other slice counts it.
                let whole = memchr::memrchr(b'\n', &text).map_or(0, |newline| newline + 1);
                text.truncate(whole.max(begin));
                events.counters.decoded.broken += 1;
                break;
            }
        }
        events.counters.fetched_bytes += end - start;
        events.counters.decoded_bytes += (text.len() - begin) as u64;
        let _all = events.walk(&text[begin..]);
        Ok(())
    }
}

/// Bytes that are searched first for the end of a line.
const START_BYTES: u64 = 64 << 10;

impl ChunkSource for DftFile {
    fn place(&self) -> String {
        self.fetch.place()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(BareUnit::Nanos(
            u32::try_from(self.unit.nanoseconds()).unwrap_or(u32::MAX),
        ))
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        match &self.sidecar {
            None => Ok(None),
            Some(open) => Ok(Some(Evidence::Sidecar {
                sidecar: open.sidecar(),
                fetch: Arc::clone(&open.fetch),
                fetched_bytes: open.fetched_bytes,
                cache: None,
                within: EVERYTHING,
            })),
        }
    }

    fn unused_index(&self) -> Option<String> {
        self.unused.clone()
    }

    fn faults(&self) -> Vec<String> {
        let damage = damage_text(&self.place(), &self.damage, self.is_unit_declared);
        damage.into_iter().chain(self.fault.clone()).collect()
    }

    fn unreadable(&self) -> Option<u64> {
        self.unreadable
    }

    fn is_changed(&self) -> bool {
        self.fetch.is_changed()
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(&self.origin.answer(filter), &self.names)
    }

    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task> {
        match (&self.sidecar, chunks) {
            (Some(sidecar), Some(chunks)) => self.indexed_tasks(sidecar, chunks),
            _ if self.len == 0 => Vec::new(),
            _ if self.gzip => vec![Task {
                chunks: vec![0],
                within: None,
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
                        within: None,
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
        self.read_prefiltered(task, fields, None, scratch, each)
    }

    fn read_passing(
        &self,
        task: &Task,
        fields: &FieldTable,
        filter: &Filter,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        // A file without an index is decoded completely, because its records are counted.
        let prefilter = self.sidecar.as_ref().and(Prefilter::new(filter, self.unit));
        self.read_prefiltered(task, fields, prefilter, scratch, each)
    }
}

impl DftFile {
    fn read_prefiltered(
        &self,
        task: &Task,
        fields: &FieldTable,
        prefilter: Option<Prefilter>,
        scratch: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let decoder = self.decoder(fields);
        let mut events = Events {
            decoder: &decoder,
            each,
            counters: Counters::default(),
            prefilter,
            origin: OriginFields::new(&self.origin, fields),
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
            (None, _) if self.gzip => {
                scan::read_all(self.text(), &mut scratch.scanner, &mut events)?;
            }
            (None, slices) => {
                for slice in slices {
                    let start = *slice as u64 * SLICE_BYTES;
                    self.read_slice(start..self.len.min(start + SLICE_BYTES), &mut events)?;
                }
            }
        }
        Ok(events.counters)
    }

    /// One task per piece of a compressed file, so that each piece is decompressed once; one per
    /// chunk of an uncompressed file.
    fn indexed_tasks(&self, sidecar: &OpenSidecar, chunks: &[usize]) -> Vec<Task> {
        let checkpoints = sidecar.index().checkpoints();
        let mut tasks: Vec<(usize, Task)> = Vec::new();
        for number in chunks {
            let Some(chunk) = sidecar.index().chunks().get(*number) else {
                continue;
            };
            let piece = if self.gzip {
                checkpoints.partition_point(|c| c.raw_offset <= chunk.raw_offset)
            } else {
                *number
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
                            within: None,
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
