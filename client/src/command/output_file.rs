//! Results in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::output_path::{behind_links, check_output};
use super::{CommandError, Context};

/// How the name of a file ends that a command has not completed, behind the number of its process.
const UNFINISHED: &str = ".unfinished";

/// A file that receives a result. It has its name once the result is complete; until then, a file
/// that had the name before is unchanged.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    /// The file that is being written; `None` for a FIFO or a device, which is written directly.
    unfinished: Option<PathBuf>,
}

impl OutputFile {
    /// Sends the output of the command to a file that is none of the inputs.
    pub(super) fn begin(
        context: &Context,
        path: &Path,
        inputs: &[PathBuf],
    ) -> Result<OutputFile, CommandError> {
        check_output(path, inputs)?;
        let failed = |error| CommandError::io(path.display(), error);
        let is_special = fs::metadata(path).is_ok_and(|known| !known.is_file());
        let path = if is_special {
            path.to_owned()
        } else {
            behind_links(path).map_err(failed)?
        };
        let (file, unfinished) = if is_special {
            (
                File::options().write(true).open(&path).map_err(failed)?,
                None,
            )
        } else {
            remove_stale(&path);
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}{UNFINISHED}", std::process::id()));
            let unfinished = PathBuf::from(name);
            let file = File::create_new(&unfinished).map_err(failed)?;
            // Tells other commands that this one lives, also those that do not see its process.
            // File systems without locks lack only that.
            let _locked = file.try_lock();
            (file, Some(unfinished))
        };
        context.redirect(path.clone(), file);
        Ok(OutputFile { path, unfinished })
    }

    /// Gives the complete file its name.
    pub(super) fn finish(mut self, context: &Context) -> Result<(), CommandError> {
        context.flush()?;
        let Some(unfinished) = &self.unfinished else {
            return Ok(());
        };
        fs::rename(unfinished, &self.path)
            .map_err(|error| CommandError::io(self.path.display(), error))?;
        self.unfinished = None;
        Ok(())
    }
}

/// Removes what commands that were killed have left of the file at `path`. What cannot be removed
/// stays: it is in nobody's way.
fn remove_stale(path: &Path) {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let (Some(name), Ok(entries)) = (path.file_name(), fs::read_dir(folder)) else {
        return;
    };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let process = found
            .as_encoded_bytes()
            .strip_prefix(name.as_encoded_bytes())
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes()))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
        let Some(process) = process else { continue };
        let is_own = process == std::process::id();
        if (is_own || !Path::new(&format!("/proc/{process}")).exists())
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _removed = fs::remove_file(entry.path());
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // A file that remains is found by its name.
            let _ = fs::remove_file(unfinished);
        }
    }
}
