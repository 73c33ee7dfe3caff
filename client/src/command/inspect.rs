use std::path::PathBuf;

use clap::Args;

use super::{CommandError, Context, Exit};
use crate::inspect::{InspectError, inspect};

/// Print a storage file or index file as JSON
///
/// The file is recognized by its content and verified. The exit code is 1 if it is damaged.
#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// A .storage, .agent, .index, .itdata, .local, .seal, .idx, .cidx, .pidx or .cached file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Inspect {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        match inspect(&self.file, &mut *context.out()) {
            Ok(is_intact) => Ok(Exit::of_integrity(is_intact)),
            Err(InspectError::Input(error)) => Err(error.into()),
            Err(InspectError::Output(error)) => Err(error.into()),
        }
    }
}
