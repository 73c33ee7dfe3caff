//! The trace in the format of another program, written while it is analysed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use io_analysis::{FioIolog, IO_CSV_HEADING, IoAccess, OracleGeneral, put_io_csv};
use trace_kinds::rocksdb::{BlockCsv, BlockNumbers, BlockRecord, BlockType, Fingerprints};

use crate::command::{CommandError, Context};

/// What to write, and where.
#[derive(Debug, Clone)]
pub(super) struct ExportTarget {
    format: ExportFormat,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Fio,
    Oracle,
    Csv,
}

pub(super) fn parse_export(text: &str) -> Result<ExportTarget, String> {
    let Some((format, path)) = text.split_once('=').filter(|(_, path)| !path.is_empty()) else {
        return Err("an export is written FORMAT=FILE".to_owned());
    };
    let format = match format {
        "fio" => ExportFormat::Fio,
        "oracle-general" => ExportFormat::Oracle,
        "csv" => ExportFormat::Csv,
        _ => return Err(format!("`{format}` is not fio, oracle-general or csv")),
    };
    Ok(ExportTarget {
        format,
        path: PathBuf::from(path),
    })
}

fn create(path: &Path) -> Result<File, CommandError> {
    File::create(path).map_err(|error| CommandError::io(path.display(), error))
}

/// Bytes collected before they are written.
const FLUSH_BYTES: usize = 1 << 16;

/// A file of text under construction.
pub(super) struct TextFile {
    path: PathBuf,
    file: BufWriter<File>,
    text: String,
}

impl TextFile {
    fn create(path: &Path) -> Result<Self, CommandError> {
        let file = BufWriter::new(create(path)?);
        Ok(Self {
            path: path.to_owned(),
            file,
            text: String::new(),
        })
    }

    fn flush(&mut self, at_bytes: usize) -> Result<(), CommandError> {
        if self.text.len() >= at_bytes {
            let written = self.file.write_all(self.text.as_bytes());
            written.map_err(|error| CommandError::io(self.path.display(), error))?;
            self.text.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), CommandError> {
        self.flush(0)?;
        self.file
            .flush()
            .map_err(|error| CommandError::io(self.path.display(), error))
    }
}

/// Bytes of the pages that an I/O trace's requests are split into for a cache simulator.
const PAGE_BYTES: u64 = 4096;

/// Pages of one operation that are requested; the rest of a longer one is left out.
const PAGES_MAX: u64 = 1 << 16;

/// Writes an I/O trace for another program.
pub(super) enum IoExport {
    /// fio's iolog.
    Fio(Box<(TextFile, FioIolog)>),
    /// A row an operation.
    Csv(Box<TextFile>),
    /// Requests to pages: object numbers are those of (file, page).
    Oracle(Box<PageRequests>),
}

/// The pages of files as objects.
pub(super) struct PageRequests {
    path: PathBuf,
    oracle: OracleGeneral<File>,
    pages: Fingerprints,
    key: Vec<u8>,
}

impl IoExport {
    pub(super) fn create(export: &ExportTarget) -> Result<Self, CommandError> {
        let path = &export.path;
        Ok(match export.format {
            ExportFormat::Fio => {
                let mut file = TextFile::create(path)?;
                let iolog = FioIolog::start(&mut file.text);
                Self::Fio(Box::new((file, iolog)))
            }
            ExportFormat::Csv => {
                let mut file = TextFile::create(path)?;
                file.text.push_str(IO_CSV_HEADING);
                Self::Csv(Box::new(file))
            }
            ExportFormat::Oracle => {
                let oracle = OracleGeneral::start(create(path)?)
                    .map_err(|error| CommandError::io(path.display(), error))?;
                let (pages, key) = (Fingerprints::default(), Vec::new());
                Self::Oracle(Box::new(PageRequests {
                    path: path.clone(),
                    oracle,
                    pages,
                    key,
                }))
            }
        })
    }

    pub(super) fn put(&mut self, access: &IoAccess<'_>) -> Result<(), CommandError> {
        match self {
            Self::Fio(fio) => {
                let (file, iolog) = &mut **fio;
                iolog.put(&mut file.text, access);
                file.flush(FLUSH_BYTES)
            }
            Self::Csv(file) => {
                put_io_csv(&mut file.text, access);
                file.flush(FLUSH_BYTES)
            }
            Self::Oracle(requests) => requests.put(access),
        }
    }

    /// Writes the rest, and says what the format could not take.
    pub(super) fn finish(self, context: &Context) -> Result<(), CommandError> {
        match self {
            Self::Fio(fio) => {
                let (mut file, iolog) = *fio;
                iolog.finish(&mut file.text);
                if iolog.skipped() > 0 {
                    let count = iolog.skipped();
                    context.note(format!(
                        "{count} operations have no counterpart in fio's iolog"
                    ));
                }
                file.finish()
            }
            Self::Csv(file) => file.finish(),
            Self::Oracle(requests) => {
                let fault = |error| CommandError::io(requests.path.display(), error);
                requests.oracle.finish().map(|_| ()).map_err(fault)
            }
        }
    }
}

impl PageRequests {
    fn put(&mut self, access: &IoAccess<'_>) -> Result<(), CommandError> {
        use io_analysis::Direction;
        let (Some(offset), Some(len @ 1..)) = (access.offset, access.len) else {
            return Ok(());
        };
        if !matches!(access.direction, Direction::Read | Direction::Write) {
            return Ok(());
        }
        let second = u64::try_from(access.start_ns).unwrap_or(0) / 1_000_000_000;
        let first = offset / PAGE_BYTES;
        let last = offset.saturating_add(len - 1) / PAGE_BYTES;
        for page in first..=last.min(first.saturating_add(PAGES_MAX - 1)) {
            self.key.clear();
            self.key.extend_from_slice(&page.to_le_bytes());
            self.key.extend_from_slice(access.file);
            let object = self.pages.number(&self.key);
            self.oracle
                .put(second, object, PAGE_BYTES)
                .map_err(|error| CommandError::io(self.path.display(), error))?;
        }
        Ok(())
    }
}

/// Writes a block cache trace for another program.
pub(super) enum CacheExport {
    /// The 21 columns of RocksDB's analyser.
    Csv(Box<(PathBuf, BufWriter<File>, BlockCsv, Vec<u8>)>),
    /// Requests to blocks.
    Oracle(Box<(PathBuf, OracleGeneral<File>, BlockNumbers)>),
}

impl CacheExport {
    pub(super) fn create(export: &ExportTarget) -> Result<Self, CommandError> {
        let path = export.path.clone();
        match export.format {
            ExportFormat::Csv => {
                let file = BufWriter::with_capacity(1 << 20, create(&path)?);
                Ok(Self::Csv(Box::new((
                    path,
                    file,
                    BlockCsv::new(),
                    Vec::new(),
                ))))
            }
            ExportFormat::Oracle => {
                let oracle = OracleGeneral::start(create(&path)?)
                    .map_err(|error| CommandError::io(path.display(), error))?;
                Ok(Self::Oracle(Box::new((
                    path,
                    oracle,
                    BlockNumbers::default(),
                ))))
            }
            ExportFormat::Fio => Err(CommandError::usage(
                "a block cache trace has no I/O to replay with fio; export oracle-general or csv",
            )),
        }
    }

    pub(super) fn put(&mut self, record: &BlockRecord<'_>) -> Result<(), CommandError> {
        match self {
            Self::Csv(csv) => {
                let (path, file, rows, text) = &mut **csv;
                text.clear();
                rows.put_row(text, record);
                file.write_all(text)
                    .map_err(|error| CommandError::io(path.display(), error))
            }
            // Nothing is known of these blocks, not even which they are.
            Self::Oracle(_) if record.block_type == BlockType::UNKNOWN => Ok(()),
            Self::Oracle(requests) => {
                let (path, oracle, blocks) = &mut **requests;
                let (_, block) = blocks.number(record);
                oracle
                    .put(record.time / 1_000_000, block, record.block_size)
                    .map_err(|error| CommandError::io(path.display(), error))
            }
        }
    }

    /// Writes the rest, and says what the format could not take.
    pub(super) fn finish(self, context: &Context) -> Result<(), CommandError> {
        match self {
            Self::Csv(csv) => {
                let (path, mut file, ..) = *csv;
                file.flush()
                    .map_err(|error| CommandError::io(path.display(), error))
            }
            Self::Oracle(requests) => {
                let (path, oracle, _) = *requests;
                let ends = oracle.finish();
                let (_, skipped) = ends.map_err(|error| CommandError::io(path.display(), error))?;
                if skipped > 0 {
                    context.note(format!(
                        "{skipped} accesses were left out: no size of their blocks was known"
                    ));
                }
                Ok(())
            }
        }
    }
}
