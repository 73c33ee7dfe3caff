//! Indexing a file: one pass that finds entries, chunks, summaries, names and the unit.

use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use chunk_index::{
    Checkpoint, Chunk, ChunkBuilder, ChunkSummary, DftFacts, DftNames, DistinctValues,
    FileDictionary, Identity, Index, IndexConfig, Window,
};
use query_language::{FieldPath, FieldTable};
use trace_kinds::dft::{
    DIMENSIONS, DftDecoder, DftVisitor, HashNames, Lines, Metadata, Names, Part, SHAPED_FIELDS,
    Shapes, TimeUnit,
};
use trace_kinds::gzip::{Entry, ScanOptions, TextSink};
use trace_kinds::{Decoded, Event};

use super::columns::{BuiltColumns, ColumnsSink};
use super::sidecar_writer::Checked;
use crate::dft::hash_names::{
    DICTIONARY_FIELD, TextLimits, dictionary_of, encode_names, stored_unit,
};
use crate::dft::head_of;
use crate::source::Scratch;
use crate::{LocalFile, ReadError};

/// How a file is indexed.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildOptions {
    /// What is indexed of each chunk.
    pub config: IndexConfig,
    /// Text of a chunk, about.
    pub chunk_bytes: u64,
    /// Text between two places where inflating can begin, at least.
    pub spacing_bytes: u64,
    /// Whether the times and values of every event are kept, too.
    pub columns: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            config: IndexConfig::new(DIMENSIONS),
            chunk_bytes: 16 << 20,
            spacing_bytes: 16 << 20,
            columns: false,
        }
    }
}

/// What indexing a file found.
#[derive(Debug)]
pub struct Built {
    /// The index.
    pub index: Index,
    /// What the file held.
    pub decoded: Decoded,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Where and why the file cannot be read to its end.
    pub fault: Option<String>,
    /// The columns, where they were asked for.
    pub columns: Option<BuiltColumns>,
}

const READ_BYTES: usize = 1 << 20;
/// By this part of its length a chunk may be longer than asked for.
const SLACK_PART: u64 = 8;

/// Indexes the DFTracer file at `path`, compressed or not.
///
/// # Errors
///
/// When the file cannot be read. Damage is told in [`Built::fault`]; what lies in front is indexed.
pub fn build(
    path: &Path,
    options: &BuildOptions,
    scratch: &mut Scratch,
) -> Result<Built, ReadError> {
    Ok(pass(path, options, scratch)?.into_built(&options.config))
}

/// Reads the file once and finds all that an index is made of.
pub(super) fn pass(
    path: &Path,
    options: &BuildOptions,
    scratch: &mut Scratch,
) -> Result<Pass, ReadError> {
    let place = path.display().to_string();
    let failed = |error| ReadError::fetch(&*place, error);
    let mut source = Checked::open(path).map_err(failed)?;
    let local = LocalFile::open(path).map_err(failed)?;
    let len = local.file().metadata().map_err(failed)?.len();
    let head = head_of(&local, len, &mut scratch.scanner)?;
    let mut build = Build::new(options, head.unit);
    if options.columns {
        build.visitor.builder.keep_columns();
        build.columns = Some(ColumnsSink::new(path, &options.config)?);
    }
    let mut fault = None;
    if head.gzip {
        let scan_options = ScanOptions {
            spacing_bytes: Some(options.spacing_bytes),
        };
        let scanner = &mut scratch.scanner;
        let scanned = scanner
            .scan(&mut source, scan_options, &mut build)
            .map_err(|source| ReadError::Gzip {
                place: place.clone(),
                source,
            })?;
        fault = scanned
            .fault
            .map(|(at, reason)| format!("{place}: byte {at}: {reason}"));
    } else {
        build.plain(&mut source).map_err(failed)?;
    }
    // Whatever follows damage is of the file, too.
    let identity = source.finish().map_err(failed)?;
    build.finish(identity, fault)
}

/// What an index is made of, while it is made.
struct Build<'o> {
    options: &'o BuildOptions,
    lines: Lines,
    decoder: DftDecoder,
    shapes: Shapes,
    visitor: Visitor,
    decoded: Decoded,
    /// The chunk that is open.
    chunk: Chunk,
    chunks: Vec<(Chunk, ChunkSummary)>,
    entries: Vec<Entry>,
    columns: Option<ColumnsSink>,
    /// An entry lies inside the line that is open: the chunk ends behind that line.
    cut_behind_line: bool,
    unit: TimeUnit,
}

struct Visitor {
    builder: ChunkBuilder,
    names: HashNames,
}

/// A visitor of the records of a text.
struct Visit<'v, 't> {
    visitor: &'v mut Visitor,
    text: &'t [u8],
    raw_offset: u64,
    lines: u64,
}

impl DftVisitor for Visit<'_, '_> {
    #[inline]
    fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()> {
        let raw_offset = self.raw_offset + line.start as u64;
        let record = self.text.get(line).unwrap_or_default();
        let builder = &mut self.visitor.builder;
        builder.add_record(event, event.shape(), raw_offset, record);
        ControlFlow::Continue(())
    }

    #[inline]
    fn line(&mut self) {
        self.lines += 1;
    }

    fn metadata(&mut self, metadata: Metadata) {
        // The unit was found at the start of the file.
        metadata.apply(&mut self.visitor.names, &mut TimeUnit::default());
    }
}

impl<'o> Build<'o> {
    fn new(options: &'o BuildOptions, unit: TimeUnit) -> Self {
        let mut table = FieldTable::new();
        let mut builder = ChunkBuilder::new(options.config.clone(), &mut table);
        builder.share_by_shape(&SHAPED_FIELDS);
        builder.collect_distinct(&FieldPath::new(DICTIONARY_FIELD));
        let visitor = Visitor {
            builder,
            names: HashNames::default(),
        };
        Build {
            options,
            lines: Lines::default(),
            // Without names a text is what the record itself holds, which is what is indexed.
            decoder: DftDecoder::new(&table, Names::default(), unit),
            shapes: Shapes::default(),
            visitor,
            decoded: Decoded::default(),
            chunk: Chunk::default(),
            chunks: Vec::new(),
            entries: Vec::new(),
            columns: None,
            cut_behind_line: false,
            unit,
        }
    }

    fn plain(&mut self, source: &mut Checked) -> std::io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match source.read(&mut buffer)? {
                0 => return Ok(()),
                read => {
                    if self.take_text(&buffer[..read]).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take_text(&mut self, text: &[u8]) -> ControlFlow<()> {
        let mut lines = std::mem::take(&mut self.lines);
        let flow = lines.feed(text, |part| self.part(part));
        self.lines = lines;
        flow
    }

    fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        match part {
            Part::Skipped(len, ends) => {
                self.chunk.raw_length += len;
                self.decoded.broken += u64::from(ends);
                self.chunk.lines += u64::from(ends);
            }
            Part::Lines(text) => {
                let mut rest = text;
                while !rest.is_empty() {
                    let lines = if self.cut_behind_line { 1 } else { self.room() };
                    let (now, later) = rest.split_at(behind_line(rest, lines));
                    self.records(now);
                    if std::mem::take(&mut self.cut_behind_line) || self.is_full(later) {
                        self.cut();
                    }
                    rest = later;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Text that the open chunk takes before it is asked again whether it is full.
    fn room(&self) -> u64 {
        let (wanted, slack) = (self.options.chunk_bytes, self.slack());
        let most = if self.chunk.raw_length < wanted {
            wanted
        } else {
            wanted + slack
        };
        most.saturating_sub(self.chunk.raw_length)
    }

    /// Whether the open chunk ends in front of `later`. A little that is left of a member is no
    /// chunk of its own.
    fn is_full(&self, later: &[u8]) -> bool {
        let (wanted, slack) = (self.options.chunk_bytes, self.slack());
        let over = self.chunk.raw_length.checked_sub(wanted);
        over.is_some_and(|over| over >= slack || later.len() as u64 >= slack)
    }

    fn slack(&self) -> u64 {
        self.options.chunk_bytes / SLACK_PART
    }

    fn records(&mut self, text: &[u8]) {
        let mut visit = Visit {
            visitor: &mut self.visitor,
            text,
            raw_offset: self.chunk.raw_offset + self.chunk.raw_length,
            lines: 0,
        };
        let decoder = &self.decoder;
        self.decoded += decoder.walk_shaped(text, &mut self.shapes, &mut visit);
        self.chunk.lines += visit.lines;
        self.chunk.raw_length += text.len() as u64;
    }

    /// Ends the open chunk and begins the next.
    fn cut(&mut self) {
        if self.chunk.raw_length == 0 {
            return;
        }
        let next = Chunk {
            raw_offset: self.chunk.raw_offset + self.chunk.raw_length,
            first_line: self.chunk.first_line + self.chunk.lines,
            number: self.chunk.number + 1,
            ..Chunk::default()
        };
        let chunk = std::mem::replace(&mut self.chunk, next);
        let builder = &mut self.visitor.builder;
        if let Some((sink, columns)) = self.columns.as_mut().zip(builder.finish_columns()) {
            sink.chunk(&chunk, columns);
        }
        self.chunks.push((chunk, builder.finish()));
    }

    fn finish(mut self, identity: Identity, fault: Option<String>) -> Result<Pass, ReadError> {
        let mut lines = std::mem::take(&mut self.lines);
        let _whole = lines.finish(|part| self.part(part));
        self.cut();
        let checkpoints: Vec<Checkpoint> = self.entries.into_iter().map(checkpoint).collect();
        for (chunk, _) in &mut self.chunks {
            (chunk.offset, chunk.length) = match checkpoints.is_empty() {
                true => (chunk.raw_offset, chunk.raw_length),
                false => compressed_range(&checkpoints, chunk, identity.length),
            };
        }
        let columns = self.columns.map(|sink| sink.finish(&identity));
        Ok(Pass {
            chunks: self.chunks,
            columns: columns.transpose()?,
            checkpoints,
            identity,
            unit: self.unit,
            members: self.visitor.builder.take_distinct(),
            names: self.visitor.names,
            decoded: self.decoded,
            text_bytes: self.chunk.raw_offset,
            fault,
        })
    }
}

/// What one pass over a file found.
pub(super) struct Pass {
    pub(super) chunks: Vec<(Chunk, ChunkSummary)>,
    columns: Option<BuiltColumns>,
    checkpoints: Vec<Checkpoint>,
    identity: Identity,
    unit: TimeUnit,
    /// The values of which filters are to be made.
    members: Option<DistinctValues>,
    names: HashNames,
    pub(super) decoded: Decoded,
    pub(super) text_bytes: u64,
    pub(super) fault: Option<String>,
}

impl Pass {
    /// Makes the filters of chunks; with a lexicon, gives it where they tell places in it.
    pub(super) fn settle(
        &mut self,
        config: &IndexConfig,
        lexicon: Option<FileDictionary>,
    ) -> Option<FileDictionary> {
        let members = self.members.take()?;
        let summaries = self.chunks.iter_mut().map(|(_, summary)| summary);
        match members.build_filters(lexicon.as_ref(), config, summaries) {
            true => lexicon,
            false => None,
        }
    }

    /// The index, made with the configuration of the pass.
    pub(super) fn into_built(mut self, config: &IndexConfig) -> Built {
        let mut index = Index::new(config);
        index.set_identity(self.identity);
        let lexicon = self.settle(config, dictionary_of(&self.names));
        let has_lexicon = lexicon.is_some();
        if let Some(lexicon) = lexicon {
            index.set_file_dictionary(&FieldPath::new(DICTIONARY_FIELD), lexicon);
        }
        for (chunk, summary) in self.chunks {
            index.push(chunk, summary);
        }
        index.set_checkpoints(self.checkpoints);
        let facts = DftFacts {
            unit: stored_unit(self.unit),
            metadata: self.decoded.metadata,
            broken: self.decoded.broken,
            text_limits: TextLimits::of(&self.names).0,
        };
        index.attach(DftFacts::NAME, facts.encode());
        index.attach(DftNames::NAME, encode_names(&self.names, has_lexicon));
        Built {
            index,
            decoded: self.decoded,
            text_bytes: self.text_bytes,
            fault: self.fault,
            columns: self.columns,
        }
    }
}

impl TextSink for Build<'_> {
    fn entry(&mut self, entry: Entry) {
        // A chunk that ends where an entry begins is read without the text behind it.
        if self.lines.inside_line() {
            self.cut_behind_line = true;
        } else {
            self.cut();
        }
        self.entries.push(entry);
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.take_text(text)
    }
}

/// Offset behind the first line end at or behind `len` bytes less one.
fn behind_line(text: &[u8], len: u64) -> usize {
    let from = usize::try_from(len.saturating_sub(1))
        .unwrap_or(usize::MAX)
        .min(text.len());
    memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |newline| from + newline + 1)
}

fn checkpoint(entry: Entry) -> Checkpoint {
    let offset = entry.bit_offset.div_ceil(8);
    Checkpoint {
        raw_offset: entry.text_offset,
        offset,
        bits: (offset * 8 - entry.bit_offset) as u8,
        window: match entry.window {
            None => Window::Member,
            Some(window) => Window::Loaded(window.into_vec()),
        },
    }
}

/// The bytes of the file between the entry before the chunk and the one behind it.
fn compressed_range(checkpoints: &[Checkpoint], chunk: &Chunk, file_len: u64) -> (u64, u64) {
    let end = chunk.raw_offset + chunk.raw_length;
    let first = checkpoints.partition_point(|c| c.raw_offset <= chunk.raw_offset);
    let start = match first.checked_sub(1).and_then(|at| checkpoints.get(at)) {
        Some(checkpoint) => checkpoint.offset - u64::from(checkpoint.bits > 0),
        None => 0,
    };
    let behind = checkpoints
        .iter()
        .find(|checkpoint| checkpoint.raw_offset >= end);
    (
        start,
        behind.map_or(file_len, |checkpoint| checkpoint.offset) - start,
    )
}
