//! DFTracer files: uncompressed or gzip, with or without a sidecar.

mod columns;
mod damage;
mod events;
mod file;
mod hash_filter;
pub(crate) mod hash_names;
mod head;
mod index_contents;
mod pieces;
mod scan;
mod set;

#[cfg(test)]
mod tests;

pub(crate) use columns::columns_of;
pub(crate) use damage::{damage_of, damage_text, stored_damage};
pub(crate) use hash_filter::{localize, needs_names};
pub(crate) use head::head_of;

pub use columns::columns_path;
pub use file::DftFile;
pub use set::DftSet;
