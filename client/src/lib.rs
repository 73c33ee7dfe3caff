//! A typed client of the Tracehold server, and what the `tracehold` command is made of.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`http`] | one method an operation of the server, retries, problem documents |
//! | [`cutter`] | trace files cut into packets |
//! | [`push`] | files pushed as streams: planning, resuming, sending |
//! | [`mount`] | files of a storage brought to this machine |
//! | [`export`] | the traces of a storage given back as files |
//! | [`remote`] | bytes of a storage's files by byte range, for reading a mount |
//! | [`inspect`] | files of a storage shown as JSON |
//! | [`command`] | the command line: one file a verb, exit codes, what is printed |
//!
//! The library never prints: whatever a person or a program sees is written by [`command`].

mod clock;
pub mod command;
pub mod cutter;
mod error;
pub mod export;
pub mod http;
pub mod inspect;
pub mod mount;
pub mod push;
pub mod remote;
#[cfg(test)]
mod testing;

pub use error::ClientError;
