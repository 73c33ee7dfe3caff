//! The files of the audit log: writing, continuing after a start, and verifying.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Mutex;

use super::chain::{Act, AuditDamage, End, What, next_line, verify};
use crate::clock::now;
use crate::config::AuditConfig;
use crate::secrets::to_hex;

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
    log: Arc<Mutex<Log>>,
}

/// The files, and where they end.
struct Log {
    folder: PathBuf,
    bytes_max: u64,
    files_max: usize,
    file: File,
    bytes: u64,
    end: End,
    /// A write failed, so that the end of the file is not known.
    is_broken: bool,
}

impl Audit {
    /// Opens the log of a data folder, and makes one if there is none; blocks.
    pub(crate) fn open(data_dir: &Path, config: &AuditConfig) -> Result<Self, AuditError> {
        let log = Log::open(data_dir.join(FOLDER), config)?;
        Ok(Self {
            log: Arc::new(Mutex::new(log)),
        })
    }

    /// Appends a line, durably. Acts are written one after another, in the order of this call.
    pub(crate) async fn record(&self, act: Act) -> Result<(), AuditError> {
        let mut log = Arc::clone(&self.log).lock_owned().await;
        let folder = log.folder.clone();
        let written = tokio::task::spawn_blocking(move || log.append(What::Act(act))).await;
        written.map_err(|error| failed("write", &folder)(io::Error::other(error)))?
    }
}

impl Log {
    fn open(folder: PathBuf, config: &AuditConfig) -> Result<Self, AuditError> {
        create_folder(&folder)?;
        let files_max = usize::try_from(config.files_max).unwrap_or(usize::MAX);
        let (file, bytes, end) = continue_log(&folder)?;
        let mut log = Self {
            folder,
            bytes_max: config.file_bytes_max,
            files_max,
            file,
            bytes,
            end,
            is_broken: false,
        };
        if log.bytes == 0 {
            log.begin()?;
        }
        Ok(log)
    }

    /// The first line of a file.
    fn begin(&mut self) -> Result<(), AuditError> {
        let after = to_hex(&self.end.seal);
        self.write(What::Begin { after })?;
        sync_folder(&self.folder)
    }

    fn append(&mut self, what: What) -> Result<(), AuditError> {
        if self.bytes >= self.bytes_max || self.is_broken {
            self.rotate()?;
        }
        self.write(what)
    }

    fn write(&mut self, what: What) -> Result<(), AuditError> {
        let (line, end) = next_line(self.end, now().to_string(), what);
        let written = self.file.write_all(&line);
        // After a failure the file may contain a part of the line.
        self.is_broken = true;
        written.map_err(failed("write", &self.folder))?;
        self.file
            .sync_data()
            .map_err(failed("sync", &self.folder))?;
        self.is_broken = false;
        self.bytes += line.len() as u64;
        self.end = end;
        Ok(())
    }

    /// Gives the current file its final name, begins the next one, and removes the oldest.
    fn rotate(&mut self) -> Result<(), AuditError> {
        set_aside(&self.folder, self.end.number)?;
        self.file = append_to(&self.folder.join(CURRENT))?;
        (self.bytes, self.is_broken) = (0, false);
        self.begin()?;
        remove_oldest(&self.folder, self.files_max)
    }
}

/// Opens the current file at its end. A last line without an end was never answered: it is cut. A
/// file that is damaged is set aside, and the log continues in another one.
fn continue_log(folder: &Path) -> Result<(File, u64, End), AuditError> {
    let path = folder.join(CURRENT);
    let file = append_to(&path)?;
    let length = file.metadata().map_err(failed("open", &path))?.len();
    let before = last_complete(folder)?;
    if length == 0 {
        return Ok((file, 0, before.unwrap_or_default()));
    }
    match verify(BufReader::new(open(&path)?), None) {
        Ok(end) => Ok((file, length, end)),
        Err(AuditDamage::Cut { line, bytes }) => {
            tracing::warn!(
                line,
                "the last line of the audit log is incomplete; it is removed"
            );
            file.set_len(bytes).map_err(failed("cut", &path))?;
            file.sync_all().map_err(failed("sync", &path))?;
            match verify(BufReader::new(open(&path)?), None) {
                Ok(end) => Ok((file, bytes, end)),
                Err(_) => Ok((file, 0, before.unwrap_or_default())),
            }
        }
        Err(damage) => {
            tracing::error!(
                %damage,
                "the audit log is damaged; it is set aside and continues in a new file"
            );
            let number = before.map_or(0, |before| before.number);
            set_aside(folder, number.saturating_add(1))?;
            Ok((append_to(&path)?, 0, before.unwrap_or_default()))
        }
    }
}

/// The end of the latest complete file, if it is intact.
fn last_complete(folder: &Path) -> Result<Option<End>, AuditError> {
    let Some((_, path)) = complete_files(folder)?.pop() else {
        return Ok(None);
    };
    Ok(verify(BufReader::new(open(&path)?), None).ok())
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

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn set_aside(folder: &Path, number: u64) -> Result<(), AuditError> {
    let mut number = number;
    let name = |number: u64| folder.join(format!("{COMPLETE_BEGIN}{number:020}{COMPLETE_END}"));
    while name(number).exists() {
        number = number.saturating_add(1);
    }
    std::fs::rename(folder.join(CURRENT), name(number)).map_err(failed("rename", folder))?;
    sync_folder(folder)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn remove_oldest(folder: &Path, files_max: usize) -> Result<(), AuditError> {
    let files = complete_files(folder)?;
    let surplus = files.len().saturating_sub(files_max);
    for (_, path) in files.into_iter().take(surplus) {
        std::fs::remove_file(&path).map_err(failed("remove", &path))?;
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
    sync_folder(parent)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn open(path: &Path) -> Result<File, AuditError> {
    File::open(path).map_err(failed("open", path))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the audit log is no data of storages"
)]
fn append_to(path: &Path) -> Result<File, AuditError> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(failed("open", path))
}

fn sync_folder(folder: &Path) -> Result<(), AuditError> {
    open(folder)?.sync_all().map_err(failed("sync", folder))
}

/// A file that is not what was written.
#[derive(Debug, Error)]
#[error("{}: {damage}", path.display())]
pub struct DamagedAudit {
    path: PathBuf,
    damage: AuditDamage,
}

/// Verifies files of an audit log, which continue each other in this order, or all of a data folder
/// if none are given; blocks. Returns the number of the last line and its seal, to compare with
/// what was noted elsewhere.
///
/// # Errors
/// The first file that is damaged, and how.
pub fn verify_audit(data_dir: &Path, files: &[PathBuf]) -> Result<(u64, String), DamagedAudit> {
    let mut all = files.to_vec();
    if all.is_empty() {
        let folder = data_dir.join(FOLDER);
        let complete = complete_files(&folder).map_err(|error| DamagedAudit {
            path: error.path,
            damage: AuditDamage::Unreadable(error.source),
        })?;
        all.extend(complete.into_iter().map(|(_, path)| path));
        all.push(folder.join(CURRENT));
    }
    let mut before = None;
    for path in all {
        let read = open(&path).map_err(|error| AuditDamage::Unreadable(error.source));
        match read.and_then(|file| verify(BufReader::new(file), before)) {
            Ok(end) => before = Some(end),
            Err(damage) => return Err(DamagedAudit { path, damage }),
        }
    }
    let end = before.unwrap_or_default();
    Ok((end.number, to_hex(&end.seal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(number: usize) -> What {
        What::Act(Act {
            caller: "anyone".to_owned(),
            method: "POST".to_owned(),
            path: format!("/{number}"),
            status: 200,
            made: None,
            request: "r".to_owned(),
        })
    }

    fn config(file_bytes_max: u64) -> AuditConfig {
        AuditConfig {
            file_bytes_max,
            files_max: 3,
        }
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let complete = complete_files(folder).unwrap().into_iter();
        let mut files: Vec<PathBuf> = complete.map(|(_, path)| path).collect();
        files.push(folder.join(CURRENT));
        files
    }

    #[test]
    fn the_log_continues_after_a_start_and_over_a_bounded_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join(FOLDER);
        for start in 0..40 {
            let mut log = Log::open(folder.clone(), &config(600)).unwrap();
            log.append(act(start)).unwrap();
            let all = files(&folder);
            assert!(all.len() <= 4);
            let (number, _) = verify_audit(&folder, &all).unwrap();
            assert_eq!(number, log.end.number);
        }
        let all = files(&folder);
        assert_eq!(all.len(), 4);
        let without = [&all[..1], &all[2..]].concat();
        let error = verify_audit(&folder, &without).unwrap_err();
        assert!(error.path == all[2] && matches!(error.damage, AuditDamage::Apart));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test damages its files")]
    fn a_torn_line_is_cut_and_a_damaged_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join(FOLDER);
        let open = || Log::open(folder.clone(), &config(1 << 20)).unwrap();
        open().append(act(1)).unwrap();
        let path = folder.join(CURRENT);
        let intact = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&intact[..], b"{\"number\":3,"].concat()).unwrap();
        open().append(act(2)).unwrap();
        assert_eq!(verify_audit(&folder, &files(&folder)).unwrap().0, 3);
        assert!(std::fs::read(&path).unwrap().starts_with(&intact));

        let mut damaged = intact;
        damaged[20] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        open().append(act(3)).unwrap();
        let all = files(&folder);
        assert_eq!(std::fs::read(&all[0]).unwrap(), damaged);
        assert!(verify_audit(&folder, &all).is_err() && verify_audit(&folder, &all[1..]).is_ok());
    }
}
