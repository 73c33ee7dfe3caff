//! Byte ranges: what RFC 9110 asks for, planned by one pure function and served without a task or a
//! lock.

mod body;
mod buffers;
mod conditions;
mod file;
mod header;
mod multipart;
mod plan;
mod response;
mod send_queue;
#[cfg(test)]
mod tests;

pub(crate) use buffers::Buffers;
pub(crate) use file::RangeFile;
pub(crate) use response::{Content, Resource, respond};
pub(crate) use send_queue::{SendQueue, is_stand_in};
