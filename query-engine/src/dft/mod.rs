//! DFTracer files: plain or gzip, with or without a sidecar.

pub(crate) mod attachment;
mod build;
mod columns;
mod file;
mod head;
mod localize;
mod pieces;
mod scan;
mod set;
mod sidecar;
mod update;
mod visit;

#[cfg(test)]
mod tests;

pub(crate) use localize::{asks_for_names, localize};

pub use build::{BuildOptions, Built, build};
pub use columns::{BuiltColumns, columns_path};
pub use file::DftFile;
pub use set::DftSet;
pub use update::update_sidecar;
