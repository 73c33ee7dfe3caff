//! The `tracehold` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    client::command::main(std::env::args_os())
}
