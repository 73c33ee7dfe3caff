//! The version of the layout of a data folder.

use std::fmt;

/// Version of the layout of a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataVersion(pub u16);

/// The version that this server writes.
pub const CURRENT_VERSION: DataVersion = DataVersion(2);

impl fmt::Display for DataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
