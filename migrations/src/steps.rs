//! The steps, and how they are applied.

use std::path::Path;

use crate::{CURRENT_VERSION, DataVersion, MigrationError, v0_to_v1, version};

/// A step from one version to the next.
struct Step {
    from: DataVersion,
    apply: fn(&Path) -> Result<(), MigrationError>,
}

const STEPS: [Step; 1] = [Step {
    from: DataVersion(0),
    apply: v0_to_v1::apply,
}];

const _: () = assert!(
    STEPS.len() == CURRENT_VERSION.0 as usize,
    "a step leads to each version"
);

/// Brings the data folder to the current version; gives the version it had.
///
/// # Errors
/// When the folder is of a newer version, is no data folder, or cannot be read or written. What a
/// step had done by then stays, and is gone on with the next time.
pub fn migrate(data_dir: &Path) -> Result<DataVersion, MigrationError> {
    std::fs::create_dir_all(data_dir).map_err(MigrationError::io("create", data_dir))?;
    let found = version::read(data_dir)?;
    if found > CURRENT_VERSION {
        return Err(MigrationError::Newer {
            path: data_dir.to_owned(),
            found,
        });
    }
    for step in STEPS.iter().skip(found.0 as usize) {
        (step.apply)(data_dir)?;
        version::write(data_dir, step.from.next())?;
    }
    Ok(found)
}
