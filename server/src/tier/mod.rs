//! Storages in the object store: uploads, evictions, storages of other nodes, and the other nodes.
//!
//! Everything here is off without `[object_store]`. Ingest needs none of it: without the store,
//! uploads wait, storages that are here are served, and `/readyz` says so.

mod adopting;
pub(crate) mod chains;
mod collecting;
mod deletions;
mod eviction;
mod labels;
mod locating;
mod mending;
mod nodes;
mod outdated;
mod pace;
mod rounds;
mod source;
pub(crate) mod store;
mod survey;
mod table;
mod takeover;
mod takeover_error;
mod uploads;

pub(crate) use deletions::forget_everywhere;
pub(crate) use labels::change_everywhere;
pub(crate) use locating::{Located, locate};
pub(crate) use nodes::NodeDocument;
pub(crate) use rounds::maintain;
pub(crate) use store::{Status, Tier};
pub(crate) use takeover::{TakenOver, take_over};
pub(crate) use takeover_error::TakeoverError;
pub(crate) use uploads::{UploadError, upload};
