//! Old on-disk versions to the current one, one file a step.
//!
//! The file `VERSION` in the data folder says which version its layout has. [`migrate`] reads it
//! before anything else of the folder is looked at, applies the steps that are missing, one after
//! another, and writes the new version behind each, so that a migration that was interrupted goes
//! on where it ended. A folder of a newer version is refused untouched.
//!
//! | step | what it does |
//! | --- | --- |
//! | `v0_to_v1` | makes an empty folder a data folder |
//!
//! A step for a new version of a file also keeps the old decoder and a fixture of the old version
//! (`fixtures/vN/`), which is migrated and verified by the tests for ever.

mod error;
mod steps;
mod v0_to_v1;
mod version;

pub use error::MigrationError;
pub use steps::migrate;
pub use version::{CURRENT_VERSION, DataVersion};
