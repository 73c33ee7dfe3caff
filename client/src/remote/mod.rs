//! Reads byte ranges of files on a server.

mod collect;
mod file;
mod plan;

pub use file::{RemoteFile, Transferred};

#[cfg(test)]
mod tests;
