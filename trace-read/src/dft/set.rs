//! A set of files that belong together.

use std::path::PathBuf;
use std::sync::Arc;

use trace_events::dft::{HASH_FIELDS, HashNames, Names};
use trace_query::{BareUnit, FieldPath, Filter};

use super::file::DftFile;
use super::localize::asks_for_names;
use crate::{ChunkSource, ReadError, Request};

/// The files of one query. A hash may be declared in any of them.
pub struct DftSet {
    files: Vec<DftFile>,
}

impl DftSet {
    /// Opens files and, with `use_sidecars`, the sidecars beside them.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn open(paths: &[PathBuf], use_sidecars: bool) -> Result<DftSet, ReadError> {
        let files = paths.iter().map(|path| DftFile::open(path, use_sidecars));
        Ok(DftSet {
            files: files.collect::<Result<_, _>>()?,
        })
    }

    /// Opens the files of a query as sources of the engine, with what hashes stand for where the
    /// query or its rows ask for that.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the query means nothing for the files.
    pub fn sources(
        paths: &[PathBuf],
        use_sidecars: bool,
        request: &Request,
        fields: &[FieldPath],
    ) -> Result<Vec<Box<dyn ChunkSource>>, ReadError> {
        let mut set = DftSet::open(paths, use_sidecars)?;
        let unit = set
            .files
            .iter()
            .map(ChunkSource::unit)
            .reduce(|a, b| a.and(b));
        let filter = request.bind(unit.unwrap_or(BareUnit::NANOS))?;
        set.resolve(filter.as_ref(), fields)?;
        Ok(set.into_sources())
    }

    /// The files.
    pub fn files(&self) -> &[DftFile] {
        &self.files
    }

    /// Learns what hashes stand for, when the query or its rows ask for that: from the sidecars,
    /// and by reading the files that have none.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn resolve(
        &mut self,
        filter: Option<&Filter>,
        columns: &[FieldPath],
    ) -> Result<(), ReadError> {
        let text = |path: &FieldPath| HASH_FIELDS.iter().any(|field| field.text == path.as_str());
        if !filter.is_some_and(asks_for_names) && !columns.iter().any(text) {
            return Ok(());
        }
        let mut set = HashNames::default();
        for file in &mut self.files {
            let kept = match &file.sidecar {
                Some(sidecar) => sidecar.names()?,
                None => None,
            };
            let own = match kept {
                Some(names) => names,
                None => super::scan::names_of(file)?,
            };
            set.merge(&own);
            file.names.own = Arc::new(own);
        }
        let set = Arc::new(set);
        for file in &mut self.files {
            file.names = Names {
                own: Arc::clone(&file.names.own),
                set: Arc::clone(&set),
            };
        }
        Ok(())
    }

    /// The files as sources of the engine.
    pub fn into_sources(self) -> Vec<Box<dyn ChunkSource>> {
        self.files
            .into_iter()
            .map(|file| Box::new(file) as Box<dyn ChunkSource>)
            .collect()
    }
}
