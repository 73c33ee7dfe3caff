//! Absent bytes, fetched from the store.

use std::io;
use std::ops::Range;
use std::time::Duration;

use object_tier::{Reader, TierError};
use storage_core::{BlockSource, Fetching};

/// Reads objects for the engine.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) reader: Reader,
    /// How long one read waits, with what is repeated.
    pub(super) patience: Duration,
}

impl BlockSource for Source {
    fn fetch(&self, key: &str, range: Range<u64>) -> Fetching {
        let (reader, key) = (self.reader.clone(), key.to_owned());
        let patience = self.patience;
        Box::pin(async move {
            let fetched = tokio::time::timeout(patience, reader.fetch_slices(&key, range)).await;
            let Ok(fetched) = fetched else {
                let seconds = patience.as_secs();
                let problem = format!("the object store sent nothing of `{key}` in {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            };
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
