//! Writing bundles.

use chunk_index::{BundleContent, BundleOwner, BundleWriter, SidecarError};
use storage_core::{DerivedSink, Engine, StorageError};
use storage_format::{DataFileId, LeafId, StorageId};

use crate::leaf_sidecars::bundle_name;

/// The bundle that is being written.
pub(crate) struct Sections<'s> {
    writer: BundleWriter,
    sink: &'s mut DerivedSink,
}

impl Sections<'_> {
    /// Writes the sidecar of a leaf, which has no other one in this bundle.
    ///
    /// # Errors
    /// When it is too long, or cannot be written.
    pub(crate) fn add<E>(&mut self, leaf: LeafId, sidecar: &[u8]) -> Result<(), E>
    where
        E: From<StorageError> + From<SidecarError>,
    {
        self.writer.add(leaf, sidecar)?;
        Ok(self.sink.write(sidecar)?)
    }
}

/// Writes the bundle of a data file and replaces an older one; `make` adds the sections. Nothing is
/// written when it returns `false` with its result. A reader has either the old bundle or the
/// complete new one.
///
/// # Errors
/// When the bundle cannot be written, or `make` fails.
pub(crate) async fn write_bundle<T, E>(
    engine: &Engine,
    content: BundleContent,
    (id, file): (StorageId, DataFileId),
    make: impl FnOnce(&mut Sections<'_>) -> Result<(bool, T), E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StorageError> + From<SidecarError> + Send + 'static,
{
    let make = move |sink: &mut DerivedSink| -> Result<(bool, T), E> {
        let owner = BundleOwner { storage: id, file };
        let writer = BundleWriter::new(content, owner);
        sink.write(&writer.header())?;
        let mut sections = Sections { writer, sink };
        let (is_wanted, made) = make(&mut sections)?;
        let Sections { writer, sink } = sections;
        if is_wanted {
            sink.write(&writer.finish()?)?;
        }
        Ok((is_wanted, made))
    };
    let name = bundle_name(content, file);
    engine.derived_files().publish_made(id, name, make).await
}
