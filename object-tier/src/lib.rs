//! Storages in an object store: uploading them, reading them from there, and the protocol by which
//! several nodes share them.
//!
//! *Invariant:* no other crate imports `object_store`.

mod bucket;
pub mod chain;
mod error;
mod local_owner;
mod node_name;
mod nodes;
mod nonce;
mod settings;

pub use bucket::{Bucket, Creation, Listed, Requests};
pub use error::TierError;
pub use local_owner::LocalOwner;
pub use node_name::NodeName;
pub use nodes::{GONE_AFTER, HEARTBEAT_INTERVAL, Heartbeat, Node, Nodes, beat};
pub use settings::StoreSettings;
