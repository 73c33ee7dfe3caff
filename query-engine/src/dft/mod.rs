//! DFTracer files: plain or gzip, with or without a sidecar.

mod columns;
mod file;
pub(crate) mod hash_names;
mod head;
mod index_contents;
mod localize;
mod pieces;
mod scan;
mod set;
mod visit;

#[cfg(test)]
mod tests;

pub(crate) use columns::columns_of;
pub(crate) use head::head_of;
pub(crate) use localize::{asks_for_names, localize};

pub use columns::columns_path;
pub use file::DftFile;
pub use set::DftSet;
