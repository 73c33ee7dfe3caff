//! Where exported files are written, and under which names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use query_engine::DERIVED_FOLDER_ENDING;
use storage_format::AgentId;
use storage_format::checksum::crc32c_append;

use super::packet::ExportStream;
use super::version::Version;
use crate::ClientError;

/// The name of the metadata file of a trace.
pub(super) const METADATA: &str = "metadata";
/// A file has this name until it is complete. No agent or stream id begins with a dot.
const UNFINISHED: &str = ".tracehold-export.tmp";
/// Maximum length of a file name on common file systems.
const NAME_BYTES_MAX: usize = 255;
/// The provenance of a copied packet whose file is not known begins so: it is the data file.
const STORED_PATH: &str = "/storage/";

/// The folder of an agent's files, and the names that are given to them.
#[derive(Debug)]
pub(super) struct AgentFolder {
    pub(super) path: PathBuf,
    taken: BTreeSet<String>,
}

impl AgentFolder {
    /// The folder of a CTF trace, or of an agent without one.
    pub(super) fn of_trace(folder: &Path, agent: &AgentId) -> Self {
        Self {
            path: folder.join(agent.as_str()),
            taken: BTreeSet::new(),
        }
    }

    /// The folder of the trace of a server's I/O, of an agent with another CTF trace.
    pub(super) fn of_io_trace(folder: &Path, agent: &AgentId) -> Self {
        Self {
            path: folder.join(format!("{agent}+io-trace")),
            taken: BTreeSet::new(),
        }
    }

    /// The folder for other files of an agent with a CTF trace: readers of a trace take every file
    /// in its folder for a stream. No agent id contains a plus sign.
    pub(super) fn beside_trace(folder: &Path, agent: &AgentId) -> Self {
        Self {
            path: folder.join(format!("{agent}+files")),
            taken: BTreeSet::new(),
        }
    }

    /// The folder for derived streams of an agent. Whoever reads all of an export leaves them out.
    pub(super) fn of_derived(folder: &Path, agent: &AgentId) -> Self {
        Self {
            path: folder.join(format!("{agent}{DERIVED_FOLDER_ENDING}")),
            taken: BTreeSet::new(),
        }
    }

    /// This name, or the first free one that begins with it.
    pub(super) fn reserve(&mut self, name: &str) -> String {
        let mut free = name.to_owned();
        for count in 1.. {
            if self.taken.insert(free.clone()) {
                break;
            }
            free = format!("{name}.{count}");
        }
        free
    }

    /// Checks that nothing that must not be replaced has this name.
    pub(super) fn check(&self, name: &str, force: bool) -> Result<(), ClientError> {
        let path = self.path.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(ClientError::file(&path, error)),
            Ok(found) if force && found.is_file() => Ok(()),
            Ok(found) if found.is_file() => Err(exists(&path)),
            Ok(_) => Err(ClientError::input(format!(
                "{} is not a regular file, and is not replaced; choose another folder",
                path.display()
            ))),
        }
    }

    /// Checks that the folder of a trace does not exist, so that the streams of two traces are
    /// never mixed. With `force` it may contain files that this export replaces, and no others.
    pub(super) fn check_trace(
        &self,
        streams: &[ExportStream],
        force: bool,
    ) -> Result<(), ClientError> {
        let failed = |error| ClientError::file(&self.path, error);
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?,
        };
        if !force {
            return Err(exists(&self.path));
        }
        let names: BTreeSet<String> = streams.iter().map(trace_file_name).collect();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if name != METADATA && name != UNFINISHED && !names.contains(&*name) {
                return Err(ClientError::input(format!(
                    "{} contains {name:?}, which is not of this trace; choose another folder",
                    self.path.display()
                )));
            }
            self.check(&name, force)?;
        }
        Ok(())
    }

    /// Begins a file.
    pub(super) fn begin(&self) -> Result<Output, ClientError> {
        fs::create_dir_all(&self.path).map_err(|error| ClientError::file(&self.path, error))?;
        let path = self.path.join(UNFINISHED);
        // A leftover of an export that was interrupted, or a link.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ClientError::file(&path, error));
            }
            _ => {}
        }
        let file = File::create_new(&path).map_err(|error| ClientError::file(&path, error))?;
        Ok(Output {
            file: BufWriter::with_capacity(1 << 18, file),
            path: Unfinished(Some(path)),
            length: 0,
            checksum: 0,
        })
    }
}

fn exists(path: &Path) -> ClientError {
    ClientError::input(format!(
        "{} already exists; choose another folder, or replace it with --force",
        path.display()
    ))
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Output {
    path: Unfinished,
    file: BufWriter<File>,
    /// Bytes written so far, and their CRC32C.
    pub(super) length: u64,
    pub(super) checksum: u32,
}

impl Output {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.length += bytes.len() as u64;
        self.checksum = crc32c_append(self.checksum, bytes);
        let written = self.file.write_all(bytes);
        written.map_err(|error| ClientError::file(self.path.get(), error))
    }

    /// Gives the file its name in the same folder. Returns its path.
    pub(super) fn finish(mut self, name: &str) -> Result<PathBuf, ClientError> {
        let path = self.path.get().with_file_name(name);
        let flushed = self.file.into_inner().map_err(io::Error::from);
        let named = flushed.and_then(|_| fs::rename(self.path.get(), &path));
        named.map_err(|error| ClientError::file(&path, error))?;
        self.path.0 = None;
        Ok(path)
    }
}

/// The path of a file that has no name yet. Unless it gets one, the file is removed: the disk may
/// be full because of it.
#[derive(Debug)]
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn get(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(UNFINISHED))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // What cannot be removed now is removed by the next export.
            let _ = fs::remove_file(path);
        }
    }
}

/// The name of a stream's file in a trace. Readers only reserve the name of the metadata.
pub(super) fn trace_file_name(stream: &ExportStream) -> String {
    match stream.stream.to_string() {
        name if name == METADATA => format!("{name}_"),
        name => name,
    }
}

/// The files of an agent with their names: the last component of the path from which a file was
/// pushed. If several streams have files with the same name, or the path is not known, it is the
/// name of the stream. Older versions of a file are numbered, the youngest of them with 1.
pub(super) fn named<'a>(
    versions: Vec<(&'a ExportStream, Version<'a>)>,
    folder: &mut AgentFolder,
) -> Vec<(&'a ExportStream, Version<'a>, String)> {
    let mut streams_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (stream, version) in &versions {
        if let Some(name) = version_name(version) {
            let streams = streams_of.entry(name).or_default();
            streams.insert(stream.stream.as_str());
        }
    }
    let mut found = Vec::with_capacity(versions.len());
    for (stream, version) in versions.into_iter().rev() {
        let own = version_name(&version);
        let own = own.filter(|name| streams_of.get(name).is_some_and(|of| of.len() == 1));
        let name = folder.reserve(own.unwrap_or(stream.stream.as_str()));
        found.push((stream, version, name));
    }
    found.reverse();
    found
}

fn version_name<'a>(version: &Version<'a>) -> Option<&'a str> {
    let path = version.file?.path.as_str();
    file_name(path).filter(|_| !path.starts_with(STORED_PATH))
}

/// The last component of a path that a producer reported, if it is a name for a file.
pub(super) fn file_name(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let is_name = !matches!(name, "" | "." | ".." | UNFINISHED)
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(|c| c.is_control() || c == '\\');
    is_name.then_some(name)
}
