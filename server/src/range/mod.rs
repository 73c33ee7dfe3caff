//! Byte ranges as defined by RFC 9110, planned by a pure function and served without a task or a
//! lock.

mod body;
mod buffers;
mod checking;
mod checksum;
mod conditions;
mod file;
mod header;
mod multipart;
mod plan;
mod residency;
mod response;
mod send_queue;
#[cfg(test)]
mod tests;

pub(crate) use buffers::Buffers;
pub(crate) use conditions::{Validators, is_known};
pub(crate) use file::RangeFile;
pub(crate) use plan::{Plan, plan};
pub(crate) use response::{Content, Resource, not_satisfiable, precondition_failed, respond};
pub(crate) use send_queue::{SendQueue, is_stand_in};
