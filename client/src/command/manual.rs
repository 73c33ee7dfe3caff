//! What shells and `man` show of the commands, made from the definitions of the commands.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CommandError, Context, Exit};
use crate::ClientError;

/// Print the completions of this command for a shell
///
/// In this shell: source <(tracehold completions bash). For good, write them to
/// ~/.local/share/bash-completion/completions/tracehold, to a file _tracehold in a folder of zsh's
/// fpath, or to ~/.config/fish/completions/tracehold.fish.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        // The generator panics when it cannot write, so it writes into memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tracehold", &mut script);
        context.out().write_all(&script)?;
        Ok(Exit::Done)
    }
}

/// Write the pages of the manual, one for each command
///
/// Read one with man -l FOLDER/tracehold.1.
#[derive(Debug, Args)]
pub(super) struct Manual {
    /// Folder to write to; it is created if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Manual {
    pub(super) fn run(self, _context: &Context) -> Result<Exit, CommandError> {
        let failed = |error| ClientError::file(&self.folder, error);
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), &self.folder).map_err(failed)?;
        Ok(Exit::Done)
    }
}
