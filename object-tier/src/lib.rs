//! Storages in an object store: uploading them, reading them from there, and the protocol by which
//! several nodes share them.
//!
//! *Invariant:* no other crate imports `object_store`.

mod bucket;
mod clock;
mod error;
mod keys;
mod settings;

pub use bucket::{Bucket, Creation, Listed, Requests};
pub use error::TierError;
pub use settings::StoreSettings;
