use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use io_analysis::bytes_text;

use super::context::counted;
use super::{CommandError, Context, Exit};
use crate::ClientError;
use crate::seal::{
    SealReport, Trust, read_public_key, read_seal, verify_archive, verify_file, verify_range,
    verify_sealed_folder,
};

/// Prove offline that a sealed storage, or a part of it, was not changed
///
/// PATH is the folder of a download or of a server, an export archive, or, with --seal, one file of
/// a storage or a range of its bytes. The exit code is 1 if anything is not as it was sealed.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Folder, archive or file to verify
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// PEM file with the public key of who may sign; may be repeated. Without one, the seal proves
    /// that files fit together, and not who sealed them
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Digest of the seal, if it is known from elsewhere, such as from the log of the server
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
    /// The seal of the file PATH
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Name that the file PATH has in its storage, if it has another one here
    #[arg(long, value_name = "NAME", requires = "seal")]
    name: Option<String>,
    /// PATH has the bytes of the file NAME from this offset on, in whole groups
    #[arg(long, value_name = "OFFSET", requires = "name")]
    at: Option<u64>,
}

impl Verify {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let keys: Result<Vec<_>, _> = self.keys.iter().map(|key| read_public_key(key)).collect();
        let trust = Trust {
            keys: keys?,
            digest: self.digest,
        };
        let path = &self.path;
        let report = match (&self.seal, path.is_dir()) {
            (Some(_), true) => {
                let what = "--seal is for one file; a folder has its seal".to_owned();
                return Err(CommandError::Usage(what));
            }
            (Some(seal), false) => {
                let seal = read_seal(seal)?;
                let own = path.file_name().unwrap_or_default().to_string_lossy();
                let name = self.name.unwrap_or_else(|| own.into_owned());
                match self.at {
                    Some(offset) => verify_range(&seal, &name, offset, path, &trust)?,
                    None => verify_file(&seal, &name, path, &trust)?,
                }
            }
            (None, true) => context.block_on(async {
                let runtime = tokio::runtime::Handle::current();
                let (path, trust) = (path.clone(), trust.clone());
                let work = move || verify_sealed_folder(&path, &trust, &runtime);
                match tokio::task::spawn_blocking(work).await {
                    Ok(report) => Ok(report?),
                    Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
                }
            })?,
            (None, false) if is_archive(path)? => verify_archive(path, &trust)?,
            (None, false) => {
                let what = format!(
                    "{} is no folder and no archive; with --seal it is compared with that seal",
                    path.display()
                );
                return Err(CommandError::Usage(what));
            }
        };
        context.print(&report, || text_of(&report, &trust))?;
        Ok(Exit::of_integrity(report.damage.is_empty()))
    }
}

/// Whether a file begins as an archive does.
fn is_archive(path: &Path) -> Result<bool, ClientError> {
    let failed = |error| ClientError::file(path, error);
    let mut begin = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(4).read_to_end(&mut begin).map_err(failed)?;
    Ok(begin == *b"PK\x03\x04")
}

fn text_of(report: &SealReport, trust: &Trust) -> String {
    let mut text = String::new();
    for damage in &report.damage {
        let offset = damage.offset.map(|at| format!(" at {at}"));
        let offset = offset.unwrap_or_default();
        text += &format!("not sealed so: {}{offset}: {}\n", damage.file, damage.what);
    }
    text += &format!("seal {}", report.digest);
    text += &match &report.key {
        Some(key) if report.is_trusted => format!(", signed by {key}\n"),
        Some(key) if trust.keys.is_empty() => {
            format!(", signed by {key}, which is not checked: give its public key with --key\n")
        }
        Some(key) => format!(", signed by {key}\n"),
        None if report.is_trusted => ", as expected; not signed\n".to_owned(),
        None => ", not signed: whoever can write the files can write such a seal\n".to_owned(),
    };
    let packets = report
        .packets
        .map(|packets| format!("{}, ", counted(packets, "packet")));
    text + &format!(
        "{}, {}{} read, {} not as sealed",
        counted(report.files, "file"),
        packets.unwrap_or_default(),
        bytes_text(report.bytes),
        report.damage.len()
    )
}
