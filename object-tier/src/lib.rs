//! Storages in an object store: uploading them, reading them from there, and the protocol by which
//! several nodes share them.
//!
//! *Invariant:* no other crate imports `object_store`.

mod bucket;
pub mod chain;
mod error;
mod node_name;
mod settings;

pub use bucket::{Bucket, Creation, Listed, Requests};
pub use error::TierError;
pub use node_name::NodeName;
pub use settings::StoreSettings;
