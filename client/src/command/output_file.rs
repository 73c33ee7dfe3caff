//! Results in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::output_path::{behind_links, check_output};
use super::{CommandError, Context};

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
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}.unfinished", std::process::id()));
            let unfinished = PathBuf::from(name);
            (
                File::create_new(&unfinished).map_err(failed)?,
                Some(unfinished),
            )
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

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // A file that remains is found by its name.
            let _ = fs::remove_file(unfinished);
        }
    }
}
