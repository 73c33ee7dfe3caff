//! Migrations of data folders to the current version, one file for each step.
//!
//! The file `VERSION` in the data folder contains the version of its layout. [`migrate`] reads it
//! before anything else, applies the missing steps in order, and writes the new version after each
//! step, so an interrupted migration resumes where it stopped. A folder of a newer version is
//! refused and not changed.
//!
//! | step | what it does |
//! | --- | --- |
//! | `v0_to_v1` | turns an empty folder into a data folder |
//! | `v1_to_v2` | nothing but the version: servers before the log refuse the folder |
//!
//! A step to a new version also keeps the old decoder and a fixture of the old version
//! (`fixtures/vN/`), which the tests migrate and verify.

mod error;
mod steps;
mod v0_to_v1;
mod v1_to_v2;
mod version;
mod version_file;

pub use error::MigrationError;
pub use steps::migrate;
pub use version::{CURRENT_VERSION, DataVersion};
