//! Storages in an object store: uploading them, reading them from there, and the protocol by which
//! several nodes share them.
//!
//! *Invariant:* no other crate imports `object_store`.

mod bucket;
mod clock;
mod error;
mod heads;
mod keys;
mod reader;
mod seal;
mod settings;

pub use bucket::{Bucket, Creation, Listed, Requests};
pub use error::TierError;
pub use heads::Heads;
pub use reader::Reader;
pub use seal::{GRANULE_BYTES, Seal, SealedFile, SealedObject, SmallFile};
pub use settings::StoreSettings;
