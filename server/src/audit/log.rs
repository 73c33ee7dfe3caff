//! The files of the audit log: writing, continuing after a start, and verifying.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use crate::clock::now;
use crate::config::AuditConfig;
use audit_log::{Act, AuditDamage, End, What, next_line, read, verify};

/// The folder in the data folder, and the file that is written.
const FOLDER: &str = "audit";
const CURRENT: &str = "audit.jsonl";
/// Complete files are named `audit-NUMBER.jsonl`, after the number of their last line.
const COMPLETE_BEGIN: &str = "audit-";
const COMPLETE_END: &str = ".jsonl";

/// Why the audit log cannot be written.
#[derive(Debug, Error)]
#[error("audit log {}: cannot {what}: {source}", path.display())]
pub struct AuditError {
    path: PathBuf,
    what: &'static str,
    source: io::Error,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |source| AuditError {
        path: path.to_owned(),
        what,
        source,
    }
}

/// The audit log of a running server.
pub(crate) struct Audit {
    log: Arc<Mutex<Log<Disk>>>,
    /// Lines that are written also if the request that caused them is gone.
    writing: parking_lot::Mutex<JoinSet<()>>,
}

impl Audit {
    /// Opens the log of a data folder, and makes one if there is none; blocks.
    pub(crate) fn open(data_dir: &Path, config: &AuditConfig) -> Result<Self, AuditError> {
        let log = Log::open(data_dir.join(FOLDER), config, Disk)?;
        Ok(Self {
            log: Arc::new(Mutex::new(log)),
            writing: parking_lot::Mutex::default(),
        })
    }

    /// Appends a line, durably, also if the returned future is dropped: a client may hang up at
    /// any point.
    pub(crate) async fn record(&self, act: Act) -> Result<(), AuditError> {
        let (reply, written) = oneshot::channel();
        self.begin(act, move |outcome| drop(reply.send(outcome)));
        let ended = || failed("write", Path::new(FOLDER))(io::Error::other("the server ends"));
        written.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Appends a line that nobody waits for.
    pub(crate) fn record_unattended(&self, act: Act) {
        self.begin(act, |outcome| {
            if let Err(error) = outcome {
                tracing::error!(%error, "a request cannot be noted in the audit log");
            }
        });
    }

    fn begin(&self, act: Act, done: impl FnOnce(Result<(), AuditError>) + Send + 'static) {
        let log = Arc::clone(&self.log);
        let mut writing = self.writing.lock();
        while writing.try_join_next().is_some() {}
        writing.spawn(async move {
            let mut log = log.lock_owned().await;
            let folder = log.folder.clone();
            let written = tokio::task::spawn_blocking(move || log.append(What::Act(act))).await;
            let written =
                written.map_err(|error| failed("write", &folder)(io::Error::other(error)));
            done(written.and_then(|written| written));
        });
    }

    /// Waits for the lines of requests that are gone. Call it when no request can arrive any more.
    pub(crate) async fn finish(&self) {
        let mut writing = std::mem::take(&mut *self.writing.lock());
        while writing.join_next().await.is_some() {}
    }
}

/// The operations that write the log; tests let them fail.
trait Operations {
    fn open(&self, path: &Path) -> io::Result<File>;
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &File) -> io::Result<()>;
    fn cut(&self, file: &File, bytes: u64) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The operations of the system.
struct Disk;

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
impl Operations for Disk {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::options().append(true).create(true).open(path)
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn cut(&self, file: &File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// The files, and where they end.
struct Log<D> {
    disk: D,
    folder: PathBuf,
    bytes_max: u64,
    files_max: usize,
    file: File,
    /// Bytes of the lines in the file; what follows them is no part of the log.
    bytes: u64,
    end: End,
    /// A write failed: there may be bytes behind the lines.
    is_torn: bool,
    /// The names in the folder are durable.
    is_named: bool,
}

impl<D: Operations> Log<D> {
    fn open(folder: PathBuf, config: &AuditConfig, disk: D) -> Result<Self, AuditError> {
        create_folder(&folder)?;
        let files_max = usize::try_from(config.files_max).unwrap_or(usize::MAX);
        let (file, bytes, end) = continue_log(&folder, &disk)?;
        let mut log = Self {
            disk,
            folder,
            bytes_max: config.file_bytes_max,
            files_max,
            file,
            bytes,
            end,
            is_torn: false,
            is_named: false,
        };
        if let Err(error) = log.prepare() {
            // On a full disk the server has to start, because something has to be deleted.
            tracing::error!(
                %error,
                "the audit log cannot be written; what operators change is answered with \
                 audit_failed until it can"
            );
        }
        Ok(log)
    }

    fn append(&mut self, what: What) -> Result<(), AuditError> {
        self.prepare()?;
        self.write(what)
    }

    /// Makes the current file ready for a line. Each step is done again until it has succeeded.
    fn prepare(&mut self) -> Result<(), AuditError> {
        if self.is_torn {
            let cut = self.disk.cut(&self.file, self.bytes);
            cut.map_err(failed("cut", &self.folder))?;
            self.is_torn = false;
        }
        let is_current = self.is_current();
        if !is_current {
            tracing::error!(
                folder = %self.folder.display(),
                "another program removed, moved or replaced the file of the audit log; it continues \
                 in a new file"
            );
        }
        if self.bytes >= self.bytes_max || !is_current {
            self.is_named = false;
            set_aside(&self.disk, &self.folder, self.end.number)?;
            let path = self.folder.join(CURRENT);
            self.file = self.disk.open(&path).map_err(failed("open", &path))?;
            self.bytes = 0;
        }
        if self.bytes == 0 {
            self.is_named = false;
            let after = self.end.seal_text();
            self.write(What::Begin { after })?;
        }
        if !self.is_named {
            let synced = self.disk.sync_folder(&self.folder);
            synced.map_err(failed("sync", &self.folder))?;
            self.is_named = true;
            if let Err(error) = remove_oldest(&self.disk, &self.folder, self.files_max) {
                tracing::warn!(%error, "the oldest file of the audit log cannot be removed");
            }
        }
        Ok(())
    }

    /// Whether the name of the current file leads to it: lines of another one would be lost.
    #[expect(
        clippy::disallowed_methods,
        reason = "the audit log is no data of storages"
    )]
    fn is_current(&self) -> bool {
        let open = self.file.metadata();
        let named = std::fs::metadata(self.folder.join(CURRENT));
        let place = |found: Metadata| (found.dev(), found.ino());
        matches!((open.map(place), named.map(place)), (Ok(open), Ok(named)) if open == named)
    }

    fn write(&mut self, what: What) -> Result<(), AuditError> {
        let (line, end) = next_line(self.end, now().to_string(), what);
        // Until both have succeeded the line is none: it is cut before the next one.
        self.is_torn = true;
        let written = self.disk.write(&self.file, &line);
        written.map_err(failed("write", &self.folder))?;
        let synced = self.disk.sync(&self.file);
        synced.map_err(failed("sync", &self.folder))?;
        self.is_torn = false;
        self.bytes += line.len() as u64;
        self.end = end;
        Ok(())
    }
}

/// Opens the current file at its end. A last line without an end was never answered: it is cut. A
/// file that is damaged is set aside, and the log continues in another one.
fn continue_log(folder: &Path, disk: &impl Operations) -> Result<(File, u64, End), AuditError> {
    let path = folder.join(CURRENT);
    if is_stranger(&path) {
        let aside = folder.join(format!("{CURRENT}.damaged-{}", now()));
        disk.rename(&path, &aside)
            .map_err(failed("rename", &path))?;
        tracing::error!(
            aside = %aside.display(),
            "the current file of the audit log is not a file; it is set aside, and the log continues \
             in a new one"
        );
    }
    let file = disk.open(&path).map_err(failed("open", &path))?;
    let length = file.metadata().map_err(failed("open", &path))?.len();
    if length == 0 {
        return Ok((file, 0, end_of_complete(folder)?));
    }
    let (end, damage) = read(BufReader::new(open(&path)?), None);
    match (end, damage) {
        (Some(end), None) => Ok((file, length, end)),
        (end, Some(AuditDamage::Cut { line, bytes })) => {
            tracing::warn!(
                line,
                "the last line of the audit log is incomplete; it is removed"
            );
            disk.cut(&file, bytes).map_err(failed("cut", &path))?;
            let before = || end_of_complete(folder);
            Ok((file, bytes, end.map_or_else(before, Ok)?))
        }
        (_, damage) => {
            tracing::error!(
                damage = damage.map(tracing::field::display),
                "the audit log is damaged; it is set aside and continues in a new file"
            );
            // Its name sorts behind all of its lines, so that no number is given twice.
            let lines = count_lines(&path).unwrap_or(1);
            let number = end_of_complete(folder)?.number.saturating_add(lines);
            set_aside(disk, folder, number)?;
            let file = disk.open(&path).map_err(failed("open", &path))?;
            Ok((file, 0, end_of_complete(folder)?))
        }
    }
}

/// Where the complete files end: at the number in the name of the latest one, with the seal of the
/// latest line that is intact.
fn end_of_complete(folder: &Path) -> Result<End, AuditError> {
    let files = complete_files(folder)?;
    let mut end = End {
        number: files.last().map_or(0, |(number, _)| *number),
        ..End::default()
    };
    for (_, path) in files.iter().rev().filter(|(_, path)| !is_stranger(path)) {
        if let (Some(found), _) = read(BufReader::new(open(path)?), None) {
            end.number = end.number.max(found.number);
            end.seal = found.seal;
            break;
        }
    }
    Ok(end)
}

fn count_lines(path: &Path) -> io::Result<u64> {
    let mut file = BufReader::new(open(path).map_err(|error| error.source)?);
    let mut lines: u64 = 0;
    loop {
        let bytes = file.fill_buf()?;
        let count = bytes.len();
        if count == 0 {
            return Ok(lines.max(1));
        }
        lines += bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        file.consume(count);
    }
}

/// The complete files by the number in their names, the oldest first.
#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn complete_files(folder: &Path) -> Result<Vec<(u64, PathBuf)>, AuditError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed("list", folder))? {
        let entry = entry.map_err(failed("list", folder))?;
        let name = entry.file_name();
        let number = (name.to_str())
            .and_then(|name| {
                name.strip_prefix(COMPLETE_BEGIN)?
                    .strip_suffix(COMPLETE_END)
            })
            .and_then(|number| number.parse().ok());
        files.extend(number.map(|number| (number, entry.path())));
    }
    files.sort_unstable();
    Ok(files)
}

/// Gives the current file its final name. It has it already if an earlier call failed after that.
fn set_aside(disk: &impl Operations, folder: &Path, number: u64) -> Result<(), AuditError> {
    let mut number = number;
    let name = |number: u64| folder.join(format!("{COMPLETE_BEGIN}{number:020}{COMPLETE_END}"));
    while name(number).exists() {
        number = number.saturating_add(1);
    }
    match disk.rename(&folder.join(CURRENT), &name(number)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("rename", folder)(error)),
        _ => Ok(()),
    }
}

fn remove_oldest(
    disk: &impl Operations,
    folder: &Path,
    files_max: usize,
) -> Result<(), AuditError> {
    let files = complete_files(folder)?;
    let surplus = files.len().saturating_sub(files_max);
    for (_, path) in files.into_iter().take(surplus) {
        disk.remove(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn create_folder(folder: &Path) -> Result<(), AuditError> {
    std::fs::create_dir_all(folder).map_err(failed("create", folder))?;
    let parent = folder.parent().unwrap_or(folder);
    Disk.sync_folder(parent).map_err(failed("sync", parent))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn open(path: &Path) -> Result<File, AuditError> {
    if is_stranger(path) {
        let error = io::Error::new(ErrorKind::InvalidData, "it is not a file");
        return Err(failed("open", path)(error));
    }
    File::open(path).map_err(failed("open", path))
}

/// Whether there is something other than a file: who opens a pipe waits, and lines that are written
/// to a device are lost.
#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn is_stranger(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// A file that is not what was written.
#[derive(Debug, Error)]
#[error("{}: {damage}", path.display())]
pub struct DamagedAudit {
    path: PathBuf,
    damage: AuditDamage,
}

/// How often the log of a data folder is read again if it seems damaged, and the time between: a
/// server that runs may be writing a line, or complete or remove a file.
const ATTEMPTS: usize = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// Verifies files of an audit log, which continue each other in this order, or all of a data folder
/// if none are given; blocks. Returns the number of the last line and its seal, to compare with
/// what was noted elsewhere.
///
/// # Errors
/// The first file that is damaged, and how.
#[expect(
    clippy::disallowed_methods,
    reason = "a command of its own: the thread has no requests"
)]
pub fn verify_audit(data_dir: &Path, files: &[PathBuf]) -> Result<(u64, String), DamagedAudit> {
    if !files.is_empty() {
        return verify_files(files);
    }
    verify_folder(&data_dir.join(FOLDER), || {
        std::thread::sleep(BETWEEN_ATTEMPTS);
    })
}

fn verify_folder(folder: &Path, mut wait: impl FnMut()) -> Result<(u64, String), DamagedAudit> {
    let mut attempt = 1;
    loop {
        let complete = complete_files(folder).map_err(|error| DamagedAudit {
            path: error.path,
            damage: AuditDamage::Unreadable(error.source),
        })?;
        let complete = complete.into_iter().map(|(_, path)| path);
        let all: Vec<PathBuf> = complete.chain([folder.join(CURRENT)]).collect();
        match verify_files(&all) {
            Err(damaged) if attempt < ATTEMPTS && damaged.damage.may_pass() => wait(),
            verified => return verified,
        }
        attempt += 1;
    }
}

fn verify_files(files: &[PathBuf]) -> Result<(u64, String), DamagedAudit> {
    let mut before = None;
    for path in files {
        let opened = open(path).map_err(|error| AuditDamage::Unreadable(error.source));
        match opened.and_then(|file| verify(BufReader::new(file), before)) {
            Ok(end) => before = Some(end),
            Err(damage) => {
                return Err(DamagedAudit {
                    path: path.clone(),
                    damage,
                });
            }
        }
    }
    let end = before.unwrap_or_default();
    Ok((end.number, end.seal_text()))
}

#[cfg(test)]
mod tests;
