//! Computes the checksums of finalized storages that have none yet.

use std::sync::Arc;

use storage_format::{paths::FileRole, storage_file::StorageFile};

use crate::{
    Progress, StorageError,
    checksums::{publish_checksums, sum_files},
    progress::Pace,
    storage::Storage,
    writer::Services,
};

/// Cancels the work when the task that waits for it is dropped.
struct CancelOnDrop(Arc<Progress>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Computes the checksums of a finalized storage and lists them in its storage file.
pub(super) async fn complete(storage: &Arc<Storage>, services: &Services) {
    let progress = Arc::<Progress>::default();
    let _cancel = CancelOnDrop(Arc::clone(&progress));
    storage.watch(&progress);
    match complete_with(storage, services, &progress).await {
        Ok(()) | Err(StorageError::Cancelled) => {}
        Err(error) => tracing::error!(
            %error, storage = %storage.id,
            "the checksums of the pieces of its data files cannot be computed; verify the storage"
        ),
    }
}

async fn complete_with(
    storage: &Arc<Storage>,
    services: &Services,
    progress: &Arc<Progress>,
) -> Result<(), StorageError> {
    let (file, folder) = (storage.info(), storage.folder.clone());
    if file.lists(FileRole::Checksums) {
        return Ok(());
    }
    let rate = services.config.arranging_bytes_per_second_max;
    let mut pace = Pace::new(progress, rate);
    let sum = move || sum_files(&folder, file.id, &file.files, &mut pace);
    let scope = io_trace::Scope::within(&services.tracer, io_trace::Cause::Finalize);
    let summed = crate::traced::on_thread(Some(scope), sum).await;
    let sums = summed.map_err(|_| StorageError::Stopping)??;
    progress.check()?;
    let (io_thread, catalog) = (&services.io_thread, &services.catalog);
    let entry = publish_checksums(&storage.folder, &sums, io_thread).await?;
    let add = |file: &mut StorageFile| {
        file.files.retain(|other| other.name != entry.name);
        file.files.push(entry);
        file.files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    };
    storage.change(io_thread, catalog, add).await.map(drop)
}
