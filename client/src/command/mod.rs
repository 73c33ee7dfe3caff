//! The command line. One file a verb.
//!
//! A verb is a `clap::Args` struct with `fn run(self, &Context) -> Result<Exit, CommandError>`.
//! To add one: write its file, add the `mod` line and the line in `verbs!` below; its doc comment
//! is its help. A verb prints through [`Context::out`] or its own lock of the standard output,
//! never with `println!`, and starts the runtime with [`Context::block_on`] only when it talks to
//! a server.

mod analyze;
mod context;
mod decode;
mod error;
mod export;
mod index;
mod inspect;
mod io_trace;
mod mount;
mod packet_file;
mod push;
mod query;
mod record;
mod storage;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use context::{Context, Global};
pub use error::{CommandError, Exit};

macro_rules! verbs {
    ($($name:ident($args:path),)+) => {
        #[derive(Debug, Subcommand)]
        enum Verb {
            $($name($args),)+
        }

        impl Verb {
            fn run(self, context: &Context) -> Result<Exit, CommandError> {
                match self {
                    $(Self::$name(verb) => verb.run(context),)+
                }
            }
        }
    };
}

verbs! {
    Analyze(analyze::Analyze),
    Decode(decode::Decode),
    Download(mount::Download),
    Export(export::Export),
    Index(index::Index),
    Inspect(inspect::Inspect),
    IoTrace(io_trace::IoTrace),
    Mount(mount::Mount),
    Push(push::Push),
    Query(query::Query),
    Record(record::Record),
    Storage(storage::Storage),
}

/// Push traces to a Tracehold server, keep them, fetch them, look into them.
///
/// Exit codes: 0 done, 1 found damage or nothing, 2 wrong use, 3 the server refused, 4 I/O.
#[derive(Debug, Parser)]
#[command(
    name = "tracehold",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// Runs the command line `args`, the first of which is the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Help and version are errors for the parser, too; it knows where each is printed.
        Err(error) => error.exit(),
    };
    let context = Context::new(cli.global);
    let outcome = cli.verb.run(&context);
    let outcome = outcome.and_then(|exit| context.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
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
    fn every_verb_explains_itself() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
        }
    }
}
