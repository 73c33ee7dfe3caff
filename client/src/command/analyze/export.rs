//! Converts a trace to the format of another program while it is analyzed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use io_analysis::{FioIolog, IO_CSV_HEADING, IoAccess, OracleGeneral, put_io_csv};
use trace_kinds::rocksdb::{BlockCsv, BlockNumbers, BlockRecord, BlockType, Fingerprints};

use crate::command::{CommandError, Context};

/// Format and path of an export.
#[derive(Debug, Clone)]
pub(super) struct ExportTarget {
    format: ExportFormat,
    path: PathBuf,
}

impl ExportTarget {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Fio,
    Oracle,
    Csv,
}

pub(super) fn parse_export(text: &str) -> Result<ExportTarget, String> {
    let Some((format, path)) = text.split_once('=').filter(|(_, path)| !path.is_empty()) else {
        return Err("expected FORMAT=FILE".to_owned());
    };
    let format = match format {
        "fio" => ExportFormat::Fio,
        "oracle-general" => ExportFormat::Oracle,
        "csv" => ExportFormat::Csv,
        _ => {
            return Err(format!(
                "unknown format `{format}`; use fio, oracle-general or csv"
            ));
        }
    };
    Ok(ExportTarget {
        format,
        path: PathBuf::from(path),
    })
}

fn create(path: &Path) -> Result<File, CommandError> {
    File::create(path).map_err(|error| CommandError::io(path.display(), error))
}

/// Text is written when it reaches this many bytes.
const FLUSH_BYTES: usize = 1 << 16;

/// A text file that is being written.
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

/// I/O operations are split into pages of this many bytes for a cache simulator.
const PAGE_BYTES: u64 = 4096;

/// Maximum number of pages per operation; the rest of a longer operation is skipped.
const PAGES_MAX: u64 = 1 << 16;

/// Converts an I/O trace.
pub(super) enum IoExport {
    /// fio's iolog.
    Fio(Box<(TextFile, FioIolog)>),
    /// One row per operation.
    Csv(Box<TextFile>),
    /// One request per page; each (file, page) is an object.
    Oracle(Box<PageRequests>),
}

/// Requests to the pages of files.
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
                        "{count} operations were skipped: an fio iolog cannot represent them"
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

/// Converts a block cache trace.
pub(super) enum CacheExport {
    /// The 21 columns of RocksDB's analyzer.
    Csv(Box<(PathBuf, BufWriter<File>, BlockCsv, Vec<u8>)>),
    /// One request per access to a block.
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
            // The trace does not say which blocks these are.
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
                        "{skipped} accesses were skipped: the sizes of their blocks are unknown"
                    ));
                }
                Ok(())
            }
        }
    }
}
