//! Names of the files of the data folder in the I/O trace, and traced operations on files.

use std::{io, path::Path, sync::Arc};

use io_trace::{Access, FileClass, FileTag, Operation, Scope, Tracer, current, errno};
use storage_format::{
    StorageId,
    paths::{AGENTS_FOLDER, CACHE_FOLDER, FileName, FileRole, RING_FOLDER, UNPUBLISHED_ENDING},
};

/// The tag of the file or folder at `path`. Its name is relative to the storages folder, or to
/// the data folder.
pub(crate) fn tag(tracer: &Arc<Tracer>, path: &Path) -> FileTag {
    let text = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let name = text(path);
    if let Ok(id) = name.parse::<StorageId>() {
        return FileTag::new(tracer, name, FileClass::Folder, Some(*id.as_bytes()));
    }
    let folder = path.parent();
    let parent = folder.map(text).unwrap_or_default();
    let published = name.strip_suffix(UNPUBLISHED_ENDING).unwrap_or(&name);
    let class = match published.parse::<FileName>() {
        Ok(name) => class_of(name.role()),
        Err(_) => FileClass::Other,
    };
    if parent == CACHE_FOLDER || parent == RING_FOLDER {
        let class = if parent == CACHE_FOLDER {
            FileClass::Answer
        } else {
            FileClass::Other
        };
        let storage = folder.and_then(Path::parent).map(text).unwrap_or_default();
        let id = storage.parse::<StorageId>().ok().map(|id| *id.as_bytes());
        let path = format!("{storage}/{parent}/{name}");
        return FileTag::new(tracer, path, class, id);
    }
    let storage = parent.parse::<StorageId>().ok();
    if storage.is_none() && parent != AGENTS_FOLDER {
        return FileTag::new(tracer, name, class, None);
    }
    let id = storage.map(|id| *id.as_bytes());
    FileTag::new(tracer, format!("{parent}/{name}"), class, id)
}

fn class_of(role: FileRole) -> FileClass {
    match role {
        FileRole::Storage | FileRole::StorageCopy => FileClass::Storage,
        FileRole::Agent => FileClass::Agent,
        FileRole::Index => FileClass::Index,
        FileRole::Data => FileClass::Data,
        FileRole::ChunkIndex => FileClass::ChunkIndex,
        FileRole::Provenance => FileClass::Provenance,
        FileRole::Local
        | FileRole::Checksums
        | FileRole::Repairs
        | FileRole::Seal
        | FileRole::Tier
        | FileRole::TierSums => FileClass::Other,
    }
}

/// The tag of `path` for the tracer of the current scope, while it is on.
pub(crate) fn tag_in_scope(path: &Path) -> Option<FileTag> {
    let scope = current().filter(|scope| scope.tracer.is_on())?;
    Some(tag(&scope.tracer, path))
}

/// Runs `work`, an operation on the file or folder at `path`, and records it.
pub(crate) fn operation<T>(
    operation: Operation,
    path: &Path,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(tag) = tag_in_scope(path) else {
        return work();
    };
    let started = tag.begin();
    let result = work();
    tag.end(started, operation, || Access {
        errno: errno(&result),
        ..Access::default()
    });
    result
}

/// Runs blocking work on a blocking thread, inside `scope`.
pub(crate) async fn on_thread<T: Send + 'static>(
    scope: Option<Scope>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(move || {
        let _inside = scope.map(Scope::enter);
        work()
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_storage_and_class() {
        let tracer = Arc::default();
        let id = StorageId::new(7, [7; 10]);
        for (path, named, class, is_of_storage) in [
            (
                format!("/d/storages/{id}"),
                id.to_string(),
                FileClass::Folder,
                true,
            ),
            (
                format!("/d/storages/{id}/0000000000000001.itdata"),
                format!("{id}/0000000000000001.itdata"),
                FileClass::Data,
                true,
            ),
            (
                format!("/d/storages/{id}/0000000000000001.index.tmp"),
                format!("{id}/0000000000000001.index.tmp"),
                FileClass::Index,
                true,
            ),
            (
                format!("/d/storages/{id}/cache/0011.cached"),
                format!("{id}/cache/0011.cached"),
                FileClass::Answer,
                true,
            ),
            (
                format!("/d/storages/{id}/ring/0000.ring"),
                format!("{id}/ring/0000.ring"),
                FileClass::Other,
                true,
            ),
            (
                "/d/agents/a.agent".to_owned(),
                "agents/a.agent".to_owned(),
                FileClass::Agent,
                false,
            ),
            (
                "/d/storages".to_owned(),
                "storages".to_owned(),
                FileClass::Other,
                false,
            ),
        ] {
            let tag = tag(&tracer, Path::new(&path));
            assert_eq!((tag.path(), tag.class()), (named.as_str(), class), "{path}");
            assert_eq!(
                tag.storage(),
                is_of_storage.then_some(*id.as_bytes()),
                "{path}"
            );
        }
    }
}
