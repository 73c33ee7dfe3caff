//! Bytes of a file on a server, by byte range.

mod collect;
mod file;
mod plan;

pub use file::{RemoteFile, Transferred};

#[cfg(test)]
mod tests;
