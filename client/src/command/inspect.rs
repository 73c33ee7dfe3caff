use std::path::PathBuf;

use clap::Args;

use super::{CommandError, Context, Exit};
use crate::inspect::{InspectError, inspect};

/// Show a file of a storage or an index as JSON; exit code 1 when it is damaged
#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// A .storage, .agent, .index, .itdata, .local, .idx, .cidx, .pidx or .cached file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Inspect {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        match inspect(&self.file, &mut *context.out()) {
            Ok(true) => Ok(Exit::Done),
            Ok(false) => Ok(Exit::NoMatchOrDamage),
            Err(InspectError::Input(error)) => Err(error.into()),
            Err(InspectError::Output(error)) => Err(error.into()),
        }
    }
}
