//! The lines of an audit log, which seal each other: the server writes them, and both programs
//! verify them.
//!
//! *Invariant:* this crate opens no file and reads no clock.

mod chain;
mod digest;

pub use chain::{Act, AuditDamage, End, What, next_line, read, verify};
