//! Absent bytes, fetched from the store.

use std::io;
use std::ops::Range;

use object_tier::{Reader, TierError};
use storage_core::{BlockSource, Fetching};

/// Reads objects for the engine.
#[derive(Debug)]
pub(super) struct Source(pub(super) Reader);

impl BlockSource for Source {
    fn fetch(&self, key: &str, range: Range<u64>) -> Fetching {
        let (reader, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let fetched = reader.fetch_slices(&key, range).await;
            fetched.map_err(|error| {
                let kind = match &error {
                    TierError::Gone(_) => io::ErrorKind::NotFound,
                    TierError::Damaged { .. } => io::ErrorKind::InvalidData,
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, error)
            })
        })
    }
}
