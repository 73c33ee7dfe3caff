//! Byte ranges: what RFC 9110 asks for, planned by one pure function and served without a task or a
//! lock.

mod body;
mod buffers;
mod conditions;
mod file;
mod header;
mod multipart;
mod plan;
mod respond;
#[cfg(test)]
mod tests;

pub(crate) use buffers::Buffers;
pub(crate) use file::RangeFile;
pub(crate) use respond::{Content, Resource, respond};
