//! Storages in an object store: uploading them, reading them from there, and the protocol by which
//! several nodes share them.
//!
//! *Invariant:* no other crate imports `object_store`.

#[macro_use]
mod fault_macros;
mod bucket;
pub mod chain;
mod clock;
mod credentials;
mod delta;
mod error;
#[cfg(feature = "fault-points")]
pub mod fault_points;
#[cfg(test)]
mod faulty;
mod heads;
mod hints;
mod keys;
mod labels;
mod local_owner;
mod location;
mod node_name;
mod nodes;
mod nonce;
mod reader;
mod removal;
#[cfg(test)]
mod sample;
mod seal;
mod settings;
mod upload;
mod verification;

pub use bucket::{Bucket, Creation, Listed, Requests};
pub use credentials::Credentials;
pub use delta::{
    Addition, Checkpoint, ColumnStatistics, DataFile, DeltaColumn, DeltaSchema, DeltaTable,
    DeltaType, FileStatistics,
};
pub use error::TierError;
pub use heads::Heads;
pub use hints::{Hint, changed_since, hour, note, repair_hints, sealed_since};
pub use labels::{LabelRecord, change_labels, latest_labels};
pub use local_owner::LocalOwner;
pub use location::{Location, LocationError, Service};
pub use node_name::NodeName;
pub use nodes::{GONE_AFTER, HEARTBEAT_INTERVAL, Heartbeat, Node, Nodes, beat};
pub use reader::Reader;
pub use removal::{Collected, collect_unnamed, is_gone, remove_storage};
pub use seal::{GRANULE_BYTES, Seal, SealedFile, SealedObject, SmallFile};
pub use settings::StoreSettings;
pub use upload::{LocalFile, Upload, Uploaded, store_file, upload};
pub use verification::verify_storage;
