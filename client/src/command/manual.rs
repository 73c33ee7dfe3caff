//! What shells and `man` show of the commands, made from the definitions of the commands.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, ValueHint};
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
        let mut command = with_hints(Cli::command());
        clap_complete::generate(self.shell, &mut command, "tracehold", &mut script);
        context.out().write_all(&script)?;
        Ok(Exit::Done)
    }
}

/// The command with hints for shells: only values that are named as files are completed as files.
/// Storages, agents, times and expressions are not.
fn with_hints(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let names = argument.get_value_names().unwrap_or_default();
        let is_file = names.iter().any(|name| {
            let parts = ["FILE", "DIR", "FOLDER", "PATH"];
            parts.iter().any(|part| name.contains(part))
        });
        match argument.get_value_hint() {
            ValueHint::Unknown if !is_file && argument.get_action().takes_values() => {
                argument.value_hint(ValueHint::Other)
            }
            _ => argument,
        }
    });
    command.mut_subcommands(with_hints)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The hints of all arguments with these value names, with the commands that they are of.
    fn hints(command: &Command, value_names: &[&str], found: &mut Vec<(String, ValueHint)>) {
        for argument in command.get_arguments() {
            let names = argument.get_value_names().unwrap_or_default();
            if names
                .iter()
                .any(|name| value_names.contains(&name.as_str()))
            {
                let of = format!("{} {}", command.get_name(), argument.get_id());
                found.push((of, argument.get_value_hint()));
            }
        }
        for command in command.get_subcommands() {
            hints(command, value_names, found);
        }
    }

    #[test]
    fn only_files_are_completed_as_files() {
        let command = with_hints(Cli::command());
        command.clone().debug_assert();
        let (mut storages, mut files) = (Vec::new(), Vec::new());
        hints(
            &command,
            &["ID|NAME", "AGENT", "EXPR", "TIME"],
            &mut storages,
        );
        assert!(storages.len() > 20, "{storages:?}");
        assert_eq!(
            storages.iter().find(|(_, hint)| *hint != ValueHint::Other),
            None
        );
        hints(
            &command,
            &["FILE", "FOLDER", "DIR", "PATH", "MOUNT"],
            &mut files,
        );
        assert!(files.len() > 10, "{files:?}");
        assert_eq!(
            files.iter().find(|(_, hint)| *hint == ValueHint::Other),
            None
        );
    }
}
