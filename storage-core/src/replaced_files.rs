//! Files that a storage does not have any more, and that readers may still use.

use std::path::PathBuf;

use storage_format::paths::FileName;

use crate::storage::Storage;

impl Storage {
    /// Lets the last reader of a storage that another one replaced remove these files; returns
    /// those that nobody reads.
    pub(crate) fn remove_with_readers(&self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let tree = self.tree.read();
        let Some(tree) = &*tree else {
            return files;
        };
        let (mut data, mut unread) = (Vec::new(), Vec::new());
        for path in files {
            let part = tree.parts().iter().find(|part| part.path == path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match (part, name.parse()) {
                (Some(part), _) => part.replace(),
                (None, Ok(FileName::Data(file))) if tree.files().contains_key(&file) => {
                    data.push(path);
                }
                _ => unread.push(path),
            }
        }
        tree.pin().replace(data);
        unread
    }
}
