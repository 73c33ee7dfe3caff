//! Validation of `storage.data_dir`.

use std::io::ErrorKind;
use std::path::Path;

use super::invalid::InvalidSetting;

/// What is wrong with the data folder before anything is written to it: it need not exist, but it
/// must be possible to create it.
pub(super) fn invalid_data_folder(data_dir: &Path) -> Option<InvalidSetting> {
    let what = if data_dir.as_os_str().is_empty() {
        "is empty".to_owned()
    } else {
        let found = data_dir.ancestors().find_map(obstacle)?;
        format!("is {data_dir:?}, and {found}")
    };
    Some(InvalidSetting {
        key: "storage.data_dir".to_owned(),
        what,
        remedy: "set it to the folder for all files, such as ./data; it is created if it does not \
                 exist"
            .to_owned(),
    })
}

/// Why there can be no folder at `path`, or below it. What cannot be examined is left to the start
/// of the server, which says why.
fn obstacle(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(metadata) => (!metadata.is_dir()).then(|| format!("{} is not a folder", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_link = path.is_symlink();
            is_link.then(|| format!("{} is a link to nothing", path.display()))
        }
        Err(_) => None,
    }
}
