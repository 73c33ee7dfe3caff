//! Changes of names that a power failure may undo.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// A change of the name `path`.
#[derive(Debug, Clone)]
pub(super) struct NameChange {
    pub(super) path: PathBuf,
    before: Before,
}

/// What undoes the change.
#[derive(Debug, Clone)]
enum Before {
    Nothing,
    File(Vec<u8>),
    /// Files of a folder by name.
    Folder(Vec<(PathBuf, Vec<u8>)>),
    /// It was called so, and `path` was a file with these bytes, or nothing.
    Renamed(PathBuf, Option<Vec<u8>>),
    /// `path` and this name were exchanged.
    Exchanged(PathBuf),
}

impl NameChange {
    /// A file or folder that is about to be created or removed.
    pub(super) fn of(path: &Path) -> Self {
        let before = if path.is_dir() {
            let names = fs::read_dir(path).unwrap().map(|name| name.unwrap().path());
            let files = names.filter(|path| path.is_file());
            let read = |path: PathBuf| {
                let bytes = fs::read(&path).unwrap_or_default();
                (PathBuf::from(path.file_name().unwrap()), bytes)
            };
            Before::Folder(files.map(read).collect())
        } else {
            fs::read(path).map_or(Before::Nothing, Before::File)
        };
        Self::new(path, before)
    }

    pub(super) fn renamed(from: &Path, to: &Path) -> Self {
        Self::new(to, Before::Renamed(from.to_owned(), fs::read(to).ok()))
    }

    pub(super) fn exchanged(one: &Path, other: &Path) -> Self {
        Self::new(other, Before::Exchanged(one.to_owned()))
    }

    fn new(path: &Path, before: Before) -> Self {
        let path = path.to_owned();
        Self { path, before }
    }

    /// Follows the new name of a file or folder.
    pub(super) fn follow(&mut self, moved: impl Fn(&Path) -> PathBuf) {
        self.path = moved(&self.path);
        if let Before::Renamed(name, _) | Before::Exchanged(name) = &mut self.before {
            *name = moved(name);
        }
    }

    fn names(&self) -> impl Iterator<Item = &Path> {
        let other = match &self.before {
            Before::Renamed(name, _) | Before::Exchanged(name) => Some(name.as_path()),
            _ => None,
        };
        std::iter::once(self.path.as_path()).chain(other)
    }

    /// Whether an earlier change concerns one of the same names, or a folder that contains one.
    fn depends_on(&self, earlier: &Self) -> bool {
        let is_near = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
        self.names()
            .any(|name| earlier.names().any(|other| is_near(name, other)))
    }

    /// What the names of earlier changes are once this one is undone.
    fn undone(&self, name: &Path) -> PathBuf {
        match &self.before {
            Before::Renamed(from, _) => moved(name, &self.path, from),
            Before::Exchanged(other) => exchanged(name, &self.path, other),
            _ => name.to_owned(),
        }
    }

    /// Undoes the change; `place` gives the place of a name.
    fn undo(&self, place: impl Fn(&Path) -> PathBuf) {
        let path = place(&self.path);
        match &self.before {
            Before::Nothing if path.is_dir() => drop(fs::remove_dir_all(path)),
            Before::Nothing => drop(fs::remove_file(path)),
            Before::File(bytes) => drop(fs::write(path, bytes)),
            Before::Folder(files) => {
                let _ = fs::create_dir(&path);
                for (name, bytes) in files {
                    let _ = fs::write(path.join(name), bytes);
                }
            }
            Before::Renamed(from, replaced) => {
                let _ = fs::rename(&path, place(from));
                if let Some(bytes) = replaced {
                    let _ = fs::write(path, bytes);
                }
            }
            Before::Exchanged(other) => {
                let _ = renameat_with(CWD, path, CWD, place(other), RenameFlags::EXCHANGE);
            }
        }
    }
}

/// Undoes some changes, the last one first: those for which `is_kept` is false and on which no
/// later one that is kept depends.
pub(super) fn undo(
    changes: &[NameChange],
    mut is_kept: impl FnMut(usize) -> bool,
    place: impl Fn(&Path) -> PathBuf + Copy,
) {
    let mut changes = changes.to_vec();
    let mut kept: Vec<NameChange> = Vec::new();
    while let Some(last) = changes.pop() {
        if is_kept(changes.len()) || kept.iter().any(|later| later.depends_on(&last)) {
            kept.push(last);
            continue;
        }
        last.undo(place);
        for change in &mut changes {
            change.follow(|name| last.undone(name));
        }
    }
}

/// `name` after `from` was renamed to `to`.
pub(super) fn moved(name: &Path, from: &Path, to: &Path) -> PathBuf {
    match name.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
        Ok(rest) => to.join(rest),
        Err(_) => name.to_owned(),
    }
}

/// `name` after two names were exchanged.
pub(super) fn exchanged(name: &Path, one: &Path, other: &Path) -> PathBuf {
    if name.starts_with(one) {
        moved(name, one, other)
    } else {
        moved(name, other, one)
    }
}
