//! The migration steps and their application.

use std::path::Path;

use crate::{CURRENT_VERSION, DataVersion, MigrationError, v0_to_v1, v1_to_v2, version_file};

/// A step from one version to the next; steps are sorted by version.
struct Step {
    to: DataVersion,
    apply: fn(&Path) -> Result<(), MigrationError>,
}

const STEPS: [Step; 2] = [
    Step {
        to: DataVersion(1),
        apply: v0_to_v1::apply,
    },
    Step {
        to: DataVersion(2),
        apply: v1_to_v2::apply,
    },
];

const _: () = assert!(
    STEPS[STEPS.len() - 1].to.0 == CURRENT_VERSION.0,
    "the last step leads to the current version"
);

/// Migrates the data folder to the current version; returns the version it had.
///
/// # Errors
/// When the folder has a newer version, is not a data folder, or cannot be read or written. The
/// steps that were completed remain, and the next call resumes after them.
pub fn migrate(data_dir: &Path) -> Result<DataVersion, MigrationError> {
    std::fs::create_dir_all(data_dir).map_err(MigrationError::io("create", data_dir))?;
    let found = version_file::read(data_dir)?;
    if found > CURRENT_VERSION {
        return Err(MigrationError::Newer {
            path: data_dir.to_owned(),
            found,
        });
    }
    for step in STEPS.iter().filter(|step| step.to > found) {
        (step.apply)(data_dir)?;
        version_file::write(data_dir, step.to)?;
    }
    assert!(
        STEPS.last().is_none_or(|step| step.to >= found),
        "a folder of a newer version is refused"
    );
    Ok(found)
}
