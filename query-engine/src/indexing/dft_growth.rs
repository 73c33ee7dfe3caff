//! A DFTracer file that has grown since it was indexed: its index is extended by what was appended.
//!
//! The last chunk is indexed again, with what follows it, so that an index that grew in many steps
//! has chunks of the same length as one that was made at once. The bytes before are read for their
//! checksum, which says whether they are those that were indexed, and are not decoded.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use chunk_index::{
    Checkpoint, DftDamage, DftFacts, DftNames, FileStamp, Index, IndexConfig, Window,
};
use query_language::FieldPath;
use trace_kinds::Decoded;
use trace_kinds::dft::{HashNames, TimeUnit};
use trace_kinds::gzip::{ScanOptions, Scanner};

use super::checkpoints::Begin;
use super::dft_file::{Build, BuildOptions, Pass};
use super::sidecar_writer::ChecksummedFile;
use crate::dft::hash_names::{
    DICTIONARY_FIELD, TextLimits, decode_names, encode_grown_names, stored_unit, unit_of,
};
use crate::dft::head_of;
use crate::source::Scratch;
use crate::{LocalFile, ReadError};

/// An index of the first bytes of a file, and where the rest begins.
struct Grown<'i> {
    index: &'i Index,
    facts: DftFacts,
    names: HashNames,
    unit: TimeUnit,
    gzip: bool,
    begin: Begin,
    /// The length and the checksum of what was indexed.
    before: (u64, u64),
}

/// Extends the index of a file that has grown, and the number of records that cannot be read.
/// `None` if the file has to be indexed anew: it does not begin with what was indexed, was damaged,
/// is so now, or is one gzip member.
///
/// # Errors
///
/// When the file cannot be opened.
pub(super) fn extended(
    path: &Path,
    options: &BuildOptions,
    index: Index,
    scratch: &mut Scratch,
) -> Result<Option<(Index, u64)>, ReadError> {
    let place = path.display().to_string();
    let failed = |error| ReadError::fetch(&*place, error);
    let local = LocalFile::open(path).map_err(failed)?;
    let length = local.file().metadata().map_err(failed)?.len();
    let identity = index.identity();
    if identity.length >= length || index.attachment(DftDamage::NAME).is_some() {
        return Ok(None);
    }
    let head = head_of(&local, length, &mut scratch.scanner)?;
    let Some(grown) = Grown::of(&index, head.gzip, head.unit) else {
        return Ok(None);
    };
    let dimensions = index.dimensions();
    let mut config = IndexConfig::new(dimensions.iter().map(FieldPath::as_str));
    config.expected_entries = options.config.expected_entries;
    config.false_positive_rate = options.config.false_positive_rate;
    config.dictionary_bytes_max = options.config.dictionary_bytes_max;
    let options = BuildOptions {
        config,
        columns: false,
        ..options.clone()
    };
    // Whatever fails here is found, and said, when the file is indexed anew.
    let Some(again) = grown.indexed_before(path, &options, &mut scratch.scanner) else {
        return Ok(None);
    };
    let Some(pass) = grown.pass(path, &options, scratch)? else {
        return Ok(None);
    };
    let Grown {
        facts,
        names,
        begin,
        ..
    } = grown;
    let decoded = Decoded {
        events: 0,
        metadata: facts.metadata.saturating_sub(again.metadata) + pass.decoded.metadata,
        broken: facts.broken.saturating_sub(again.broken) + pass.decoded.broken,
    };
    let broken = decoded.broken;
    let grown = joined(index, (begin, &names), (pass, decoded, head.unit), &options);
    Ok(Some((grown, broken)))
}

impl<'i> Grown<'i> {
    fn of(index: &'i Index, gzip: bool, unit: TimeUnit) -> Option<Self> {
        let identity = index.identity();
        let facts = DftFacts::decode(index.attachment(DftFacts::NAME)?).ok()?;
        // The start of the file may say another unit now than when it was shorter.
        if unit_of(facts.unit) != unit {
            return None;
        }
        let dictionary = index.file_dictionary(&FieldPath::new(DICTIONARY_FIELD));
        let names = index.attachment(DftNames::NAME)?;
        let names = decode_names(names, dictionary.map(AsRef::as_ref))?;
        Some(Self {
            begin: last_begin(index, gzip)?,
            before: (identity.length, identity.checksum?),
            index,
            facts,
            names,
            unit,
            gzip,
        })
    }

    /// The records from where the rest begins to where the index ends.
    fn indexed_before(
        &self,
        path: &Path,
        options: &BuildOptions,
        scanner: &mut Scanner,
    ) -> Option<Decoded> {
        let options = BuildOptions {
            config: IndexConfig::new([]),
            ..options.clone()
        };
        let mut file = File::open(path).ok()?;
        file.seek(SeekFrom::Start(self.begin.offset)).ok()?;
        let length = self.before.0.checked_sub(self.begin.offset)?;
        let names = HashNames::default();
        let mut build = Build::at(self.begin, names, (&options, self.unit));
        self.feed(&mut build, &mut file.take(length), &options, scanner)?;
        build.end();
        let events = build.decoded.events;
        let chunks = usize::try_from(self.begin.chunks).ok()?;
        let indexed = self.index.chunks().get(chunks..)?;
        let indexed: u64 = indexed.iter().map(|chunk| chunk.events).sum();
        (indexed == events).then_some(build.decoded)
    }

    /// Indexes the rest of the file.
    fn pass(
        &self,
        path: &Path,
        options: &BuildOptions,
        scratch: &mut Scratch,
    ) -> Result<Option<Pass>, ReadError> {
        let Ok(mut source) = ChecksummedFile::open(path, &scratch.progress) else {
            return Ok(None);
        };
        if source.resume(self.begin.offset, self.before).is_err() {
            return Ok(None);
        }
        let mut build = Build::at(self.begin, self.names.clone(), (options, self.unit));
        let fed = self.feed(&mut build, &mut source, options, &mut scratch.scanner);
        let Some((_, identified)) = fed.zip(source.finish().ok()) else {
            return Ok(None);
        };
        build.finish(identified, Vec::new()).map(Some)
    }

    /// Passes on the text of a source; `None` if it is damaged or cannot be read.
    fn feed(
        &self,
        build: &mut Build<'_>,
        source: &mut impl Read,
        options: &BuildOptions,
        scanner: &mut Scanner,
    ) -> Option<()> {
        if !self.gzip {
            return build.plain(source).ok();
        }
        let options = ScanOptions {
            spacing_bytes: Some(options.spacing_bytes),
            ..ScanOptions::default()
        };
        let scanned = scanner.scan(source, options, build).ok()?;
        (scanned.damage.is_empty() && scanned.unverified.is_none()).then_some(())
    }
}

/// Where the last chunk begins that can be decoded without those before it; `None` if that is the
/// start of the file.
fn last_begin(index: &Index, gzip: bool) -> Option<Begin> {
    let members = index.checkpoints().iter();
    let members: Vec<_> = members
        .filter(|checkpoint| checkpoint.window == Window::Member)
        .collect();
    let chunks = index.chunks().iter().enumerate().skip(1);
    chunks.rev().find_map(|(at, chunk)| {
        let offset = if gzip {
            let of_raw = |checkpoint: &&Checkpoint| checkpoint.raw_offset;
            let found = members.binary_search_by_key(&chunk.raw_offset, of_raw);
            members.get(found.ok()?)?.offset
        } else {
            chunk.raw_offset
        };
        Some(Begin {
            offset,
            raw_offset: chunk.raw_offset,
            line: chunk.first_line,
            chunks: at as u64,
        })
    })
}

/// The chunks before the last one, and those of the rest.
fn joined(
    mut index: Index,
    (begin, names_before): (Begin, &HashNames),
    (mut pass, decoded, unit): (Pass, Decoded, TimeUnit),
    options: &BuildOptions,
) -> Index {
    let has_dictionary = index
        .file_dictionary(&FieldPath::new(DICTIONARY_FIELD))
        .is_some();
    // The dictionary of the file has the hashes of before. Filters of the rest do not need it.
    pass.build_filters(&options.config, None);
    index.truncate(usize::try_from(begin.chunks).unwrap_or(usize::MAX));
    let before = index.checkpoints().iter();
    let before = before.filter(|checkpoint| checkpoint.raw_offset < begin.raw_offset);
    let checkpoints = before.cloned().chain(pass.checkpoints).collect();
    index.set_checkpoints(checkpoints);
    index.set_identity(pass.identity);
    for (chunk, summary) in pass.chunks {
        index.push(chunk, summary);
    }
    let facts = DftFacts {
        unit: stored_unit(unit),
        metadata: decoded.metadata,
        broken: decoded.broken,
        text_limits: TextLimits::of(&pass.names).0,
    };
    index.attach(DftFacts::NAME, facts.encode());
    let names = encode_grown_names(&pass.names, has_dictionary.then_some(names_before));
    index.attach(DftNames::NAME, names);
    index.detach(FileStamp::NAME);
    if let Some(stamp) = pass.stamp {
        index.attach(FileStamp::NAME, stamp.encode());
    }
    index
}
