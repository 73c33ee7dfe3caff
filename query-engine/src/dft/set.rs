//! The DFTracer files of one query.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use query_language::{FieldPath, Filter};
use trace_kinds::dft::{HASH_FIELDS, HashKind, HashNames, HashValue, Names};

use super::file::DftFile;
use super::hash_filter::{NeededNames, needed_names};
use super::hash_names::{StoredName, StoredNames};
use super::index_contents::PackedNames;
use crate::{ChunkSource, ReadError, Request};

/// The files of one query. A hash may be declared in any of them.
pub struct DftSet {
    files: Vec<DftFile>,
}

impl DftSet {
    /// Opens files and, with `use_sidecars`, the sidecars next to them.
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

    /// Opens the files of a query as sources, with the texts of hashes if the query or its rows
    /// need them.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the query is invalid for the files.
    pub fn sources(
        paths: &[PathBuf],
        use_sidecars: bool,
        request: &Request,
        fields: &[FieldPath],
    ) -> Result<Vec<Box<dyn ChunkSource>>, ReadError> {
        DftSet::open(paths, use_sidecars)?.sources_for(request, fields)
    }

    /// A set of open files.
    pub(crate) fn of(files: Vec<DftFile>) -> DftSet {
        DftSet { files }
    }

    /// As [`DftSet::sources`], for open files.
    pub(crate) fn sources_for(
        mut self,
        request: &Request,
        fields: &[FieldPath],
    ) -> Result<Vec<Box<dyn ChunkSource>>, ReadError> {
        let files = self.files.iter();
        let with_unit = files.filter_map(|file| Some((file.unit()?, file)));
        let is_excluded =
            |file: &&DftFile, filter: &Filter| file.localize(filter).evaluate.passes_none();
        let units = request.units(with_unit.collect(), &is_excluded)?;
        let filter = request.bind_all(units)?;
        self.resolve(filter.as_ref(), fields)?;
        Ok(self.into_sources())
    }

    /// The files.
    pub fn files(&self) -> &[DftFile] {
        &self.files
    }

    /// Loads the texts of hashes, if the query or its rows need them: from the sidecars, and by
    /// reading the files that have none.
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
        let mut needed = filter.map_or(NeededNames::None, needed_names);
        if columns.iter().any(text) {
            needed = NeededNames::All;
        }
        if needed == NeededNames::None {
            return Ok(());
        }
        if let NeededNames::HashesOf(texts) = &needed
            && !texts
                .iter()
                .any(|(kind, text)| self.may_declare(*kind, text))
        {
            return Ok(());
        }
        let mut declared: Vec<Declared<'_>> = self
            .files
            .iter()
            .map(Declared::of)
            .collect::<Result<_, _>>()?;
        let mut own: Vec<HashNames> = Vec::new();
        match &needed {
            NeededNames::HashesOf(texts) => {
                let lens: HashSet<usize> = texts.iter().map(|(_, text)| text.len()).collect();
                let wanted = |name: &DeclaredName<'_>| {
                    lens.contains(&name.text().len())
                        && texts.contains(&(name.kind(), name.text().into()))
                };
                let mut hashes = HashNames::default();
                for declared in &mut declared {
                    hashes.merge(&declared.names(&wanted)?);
                }
                // Another text of such a hash may take precedence, in a file and in the set.
                for declared in &mut declared {
                    let is_needed =
                        |name: &DeclaredName<'_>| hashes.text(name.kind(), &name.hash()).is_some();
                    own.push(if hashes.is_empty() {
                        HashNames::default()
                    } else {
                        declared.names(&is_needed)?
                    });
                }
            }
            NeededNames::None | NeededNames::All => {
                let all = declared
                    .iter_mut()
                    .map(|declared| declared.names(&|_| true));
                own = all.collect::<Result<_, _>>()?;
            }
        }
        // In the order of their paths, however they were named.
        let mut of_files: Vec<(&DftFile, &HashNames)> = self.files.iter().zip(&own).collect();
        of_files.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let mut set = HashNames::default();
        of_files.iter().for_each(|(_, own)| set.merge(own));
        let set = Arc::new(set);
        for (file, own) in self.files.iter_mut().zip(own) {
            file.names = Names {
                own: Arc::new(own),
                set: Arc::clone(&set),
            };
        }
        Ok(())
    }

    /// Whether a file may declare a hash of this kind for `text`. A file without an
    /// index may declare anything.
    fn may_declare(&self, kind: HashKind, text: &[u8]) -> bool {
        let mut limits = self.files.iter().map(|file| file.texts.as_ref());
        limits.any(|limits| limits.is_none_or(|limits| limits.may_have(kind, text)))
    }

    /// The files as sources of the engine.
    pub fn into_sources(self) -> Vec<Box<dyn ChunkSource>> {
        self.files
            .into_iter()
            .map(|file| Box::new(file) as Box<dyn ChunkSource>)
            .collect()
    }
}

/// The declarations of a file.
struct Declared<'f> {
    file: &'f DftFile,
    names: FileNames,
}

/// The names of a file: packed in its sidecar, or read from the file.
enum FileNames {
    Packed(PackedNames),
    Read(HashNames),
}

/// A declaration from either.
enum DeclaredName<'a> {
    Packed(StoredName<'a>),
    Read(HashKind, &'a HashValue, &'a [u8]),
}

impl DeclaredName<'_> {
    fn kind(&self) -> HashKind {
        match self {
            DeclaredName::Packed(name) => name.kind,
            DeclaredName::Read(kind, ..) => *kind,
        }
    }

    fn hash(&self) -> HashValue {
        match self {
            DeclaredName::Packed(name) => name.hash(),
            DeclaredName::Read(_, hash, _) => (*hash).clone(),
        }
    }

    fn text(&self) -> &[u8] {
        match self {
            DeclaredName::Packed(name) => name.text,
            DeclaredName::Read(_, _, text) => text,
        }
    }
}

impl<'f> Declared<'f> {
    fn of(file: &'f DftFile) -> Result<Declared<'f>, ReadError> {
        let packed = match &file.sidecar {
            Some(sidecar) => sidecar.packed_names()?,
            None => None,
        };
        let names = match packed {
            Some(packed) => FileNames::Packed(packed),
            None => FileNames::Read(super::scan::names_of(file.text())?),
        };
        Ok(Declared { file, names })
    }

    /// The declarations that `filter` accepts.
    fn names(
        &mut self,
        filter: &dyn Fn(&DeclaredName<'_>) -> bool,
    ) -> Result<HashNames, ReadError> {
        let mut names = HashNames::default();
        let mut add = |name: DeclaredName<'_>| {
            if filter(&name) {
                names.insert(name.kind(), name.hash(), name.text());
            }
        };
        if let FileNames::Packed(packed) = &self.names {
            if let Some(stored) = StoredNames::decode(&packed.packed, packed.dictionary.as_ref()) {
                stored.iter().map(DeclaredName::Packed).for_each(add);
                return Ok(names);
            }
            // They are damaged or of another version.
            self.names = FileNames::Read(super::scan::names_of(self.file.text())?);
        }
        if let FileNames::Read(read) = &self.names {
            read.iter()
                .for_each(|(kind, hash, text)| add(DeclaredName::Read(kind, hash, text)));
        }
        Ok(names)
    }
}
