//! The chain of a storage: its packets in the bucket, in the order in which they were acknowledged,
//! while nodes come and go.
//!
//! A chain is a sequence of records, one object each, numbered from 0. Every record is made by a
//! create that fails if its number is taken, so there is one record a number, whoever wrote it. A
//! node begins with an `own` record, whose epoch is greater than all before it, and appends packets
//! behind it. When another node puts its `own` at the number that the first would use next, the
//! first cannot append any more, and learns why when it tries.
//!
//! - A record of an older epoch behind a newer `own` is *void*: it never counts.
//! - Nothing behind a `close` counts. From then on the packets of the storage are fixed, and any
//!   node may make its seal from them; the first seal is the one.
//! - When the seal is there, the packets are in the sealed files too, and [`collect`] removes their
//!   records. Owns and closes stay: without them, a request that was delayed for long could put a
//!   record at a free number, and its sender would believe that it counts.
//! - Who takes over looks for the seal when its `own` is there. No seal at that moment means that
//!   nothing had been collected before, so the walk saw the whole chain.
//! - One append is under way at a time. If its end is unknown, the same bytes are sent again under
//!   the same number until it is known: any other record could come before it.
//!
//! `object-tier/tests/fence_model` explores these rules exhaustively,
//! `object-tier/tests/chain_simulation` this code.

mod collection;
mod fetching;
mod keys;
mod owner;
mod record;
mod sequence;
mod walk;

pub use collection::{Collected, collect};
pub use keys::{chain_folder, record_key, seal_key};
pub use owner::{Chain, Claimant, Takeover, Walker};
pub use record::{PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordKind};
pub use sequence::Owner;
pub use walk::{ChainEnd, Standing, last_owner, packets_before, standing, valid_records};
