//! The command line, one file per subcommand.
//!
//! A subcommand is a `clap::Args` struct with `fn run(self, &Context) -> Result<Exit,
//! CommandError>`. To add one, write its file, then add the `mod` line and the line in
//! `subcommands!` below. The doc comment of the struct is its help text. A subcommand prints
//! through [`Context`], never with `println!`, and starts the runtime with [`Context::block_on`]
//! only if it calls a server.

mod agent;
mod analyze;
mod audit;
mod buffer;
mod context;
mod copied_events;
mod decode;
mod demo;
mod duration;
mod error;
mod export;
mod index;
mod inspect;
mod io_trace;
mod labels;
mod listing;
mod manual;
mod mount;
mod nodes;
mod open;
mod output_file;
mod output_path;
mod packet_file;
mod progress;
mod push;
mod query;
mod record;
mod seal;
mod storage;
mod token;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use context::{Context, Global};
use error::refuse;
pub use error::{CommandError, Exit};

macro_rules! subcommands {
    ($($name:ident($args:path),)+) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($name($args),)+
        }

        impl Command {
            fn run(self, context: &Context) -> Result<Exit, CommandError> {
                match self {
                    $(Self::$name(command) => command.run(context),)+
                }
            }
        }
    };
}

subcommands! {
    Agent(agent::Agent),
    Analyze(analyze::Analyze),
    Audit(audit::Audit),
    Buffer(buffer::Buffer),
    Completions(manual::Completions),
    Decode(decode::Decode),
    Demo(demo::Demo),
    Download(mount::Download),
    Export(export::Export),
    Fields(query::Fields),
    Index(index::Index),
    Inspect(inspect::Inspect),
    IoTrace(io_trace::IoTrace),
    Labels(labels::Labels),
    Manual(manual::Manual),
    Mount(mount::Mount),
    Nodes(nodes::Nodes),
    Open(open::Open),
    Push(push::Push),
    Query(query::Query),
    Record(record::Record),
    Seal(seal::Seal),
    Storage(storage::Storage),
    Token(token::Token),
    Verify(verify::Verify),
}

const EXIT_CODES: &str = "Exit codes:
  0  success
  1  nothing matched, the input is empty, or damage was found
  2  usage error, or a file of a kind that the command does not accept
  3  refused by the server
  4  I/O error";

/// Store traces on a Tracehold server; query, export and analyze them
#[derive(Debug, Parser)]
#[command(
    name = "tracehold",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Runs the command line `args`, of which the first is the program name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // The parser reports help and version as errors, too, and prints each where it belongs.
        Err(error) => error.exit(),
    };
    let context = Context::new(cli.global);
    let outcome = cli.command.run(&context);
    let outcome = outcome.and_then(|exit| context.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            let error = context.with_output(error);
            context.report(&error);
            error.exit().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_help_text() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }
}
