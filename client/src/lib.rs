//! A typed client of the Tracehold server, and the `tracehold` command.
//!
//! | module | contents |
//! | --- | --- |
//! | [`http`] | one method per operation of the server, retries, problem documents |
//! | [`cutter`] | cutting trace files into packets |
//! | [`push`] | pushing files as streams: planning, resuming, sending |
//! | [`mount`] | downloading files of a storage |
//! | [`export`] | exporting the traces of a storage as files |
//! | [`remote`] | reading byte ranges of a storage's files, for queries over a mount |
//! | [`seal`] | proving offline that a storage was not changed |
//! | [`inspect`] | printing files of a storage as JSON |
//! | [`command`] | the command line: one file per subcommand, exit codes, output |
//!
//! Only [`command`] prints.

#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the numbers of tests are small"
    )
)]

mod clock;
pub mod command;
pub mod cutter;
mod error;
pub mod export;
mod file_content;
pub mod http;
pub mod inspect;
pub mod mount;
pub mod push;
pub mod remote;
pub mod seal;
#[cfg(test)]
mod testing;

pub use error::ClientError;
