//! A set of files that belong together.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use query_language::{BareUnit, FieldPath, Filter};
use trace_kinds::dft::{HASH_FIELDS, HashKind, HashNames, HashValue, Names};

use super::file::DftFile;
use super::hash_names::{StoredName, StoredNames};
use super::index_contents::PackedNames;
use super::localize::{NamesAsked, names_asked};
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
        let mut asked = filter.map_or(NamesAsked::None, names_asked);
        if columns.iter().any(text) {
            asked = NamesAsked::All;
        }
        if asked == NamesAsked::None {
            return Ok(());
        }
        if let NamesAsked::HashesOf(texts) = &asked
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
        let mut set = HashNames::default();
        let mut own = Vec::new();
        match &asked {
            NamesAsked::HashesOf(texts) => {
                let lens: HashSet<usize> = texts.iter().map(|(_, text)| text.len()).collect();
                let wanted = |name: &DeclaredName<'_>| {
                    lens.contains(&name.text().len())
                        && texts.contains(&(name.kind(), name.text().into()))
                };
                for declared in &mut declared {
                    set.merge(&declared.names(&wanted)?);
                }
                // What a file says of these hashes goes before what the set says.
                for declared in &mut declared {
                    let of_set =
                        |name: &DeclaredName<'_>| set.text(name.kind(), &name.hash()).is_some();
                    own.push(match set.is_empty() {
                        true => HashNames::default(),
                        false => declared.names(&of_set)?,
                    });
                }
            }
            NamesAsked::None | NamesAsked::All => {
                let all = declared
                    .iter_mut()
                    .map(|declared| declared.names(&|_| true));
                own = all.collect::<Result<_, _>>()?;
                own.iter().for_each(|own| set.merge(own));
            }
        }
        let set = Arc::new(set);
        for (file, own) in self.files.iter_mut().zip(own) {
            file.names = Names {
                own: Arc::new(own),
                set: Arc::clone(&set),
            };
        }
        Ok(())
    }

    /// Whether a file may say that a hash of this kind stands for `text`; a file without an index
    /// may say anything.
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

/// What a file declares.
struct Declared<'f> {
    file: &'f DftFile,
    form: Form,
}

/// Packed, as the sidecar has it, or as reading the file found it.
enum Form {
    Packed(PackedNames),
    Read(HashNames),
}

/// A declaration in either form.
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
        let kept = match &file.sidecar {
            Some(sidecar) => sidecar.packed_names()?,
            None => None,
        };
        let form = match kept {
            Some(packed) => Form::Packed(packed),
            None => Form::Read(super::scan::names_of(file.text())?),
        };
        Ok(Declared { file, form })
    }

    /// The declarations that `keep` accepts.
    fn names(&mut self, keep: &dyn Fn(&DeclaredName<'_>) -> bool) -> Result<HashNames, ReadError> {
        let mut names = HashNames::default();
        let mut take = |name: DeclaredName<'_>| {
            if keep(&name) {
                names.insert(name.kind(), name.hash(), name.text());
            }
        };
        if let Form::Packed(own) = &self.form {
            if let Some(stored) = StoredNames::decode(&own.packed, own.dictionary.as_ref()) {
                stored.iter().map(DeclaredName::Packed).for_each(take);
                return Ok(names);
            }
            // Another version wrote them.
            self.form = Form::Read(super::scan::names_of(self.file.text())?);
        }
        if let Form::Read(read) = &self.form {
            read.iter()
                .for_each(|(kind, hash, text)| take(DeclaredName::Read(kind, hash, text)));
        }
        Ok(names)
    }
}
