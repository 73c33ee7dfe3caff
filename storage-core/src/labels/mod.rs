//! Labels of storages and their types.
//!
//! The labels of a storage are in its storage file, so they survive the loss of any other file.
//! The declared types are in the label file of the data folder; labels of a type that nobody
//! declared are plain text.

mod value;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use parking_lot::RwLock;
use storage_format::{
    label_file::{LabelFile, LabelType, VALUE_SEPARATOR, ValueType},
    limits::{LABEL_TYPE_COUNT_MAX, LABEL_VALUE_COUNT_MAX},
    paths::LABEL_FILE,
    storage_file::StorageFile,
};

pub use value::{Comparison, LabelFilter, LabelValue};

use crate::{StorageError, aside::set_aside, io_thread::IoThread, read::read_small};

/// When a storage was created; derived by the server.
pub(crate) const CREATION_DATE: &str = "creation_date";
/// First and last instant of a finalized storage; derived by the server.
pub(crate) const DATA_TIME_FRAME: &str = "data_time_frame";
/// Readers who gave their name.
pub(crate) const EXPLORED_BY: &str = "explored_by";

/// Protects a storage from every deletion.
/// The label that protects a storage from deletion.
pub const LEGAL_HOLD: &str = "legal_hold";

/// Predefined types: name, type of the values, whether a storage may have several.
const PREDEFINED: [(&str, ValueType, bool); 8] = [
    ("assignee", ValueType::String, false),
    (CREATION_DATE, ValueType::Date, false),
    (DATA_TIME_FRAME, ValueType::TimeFrame, false),
    (EXPLORED_BY, ValueType::String, true),
    (LEGAL_HOLD, ValueType::String, false),
    ("rating", ValueType::Number, false),
    ("status", ValueType::String, false),
    ("use_case", ValueType::String, true),
];

/// Whether the server derives the value, so that users cannot change it.
pub(crate) fn is_read_only(name: &str) -> bool {
    matches!(name, CREATION_DATE | DATA_TIME_FRAME)
}

/// Whether a label protects the storage from every deletion.
#[must_use]
pub fn is_held(storage: &StorageFile) -> bool {
    storage.labels.contains_key(LEGAL_HOLD)
}

/// Whether the type is predefined.
pub(crate) fn is_predefined(name: &str) -> bool {
    PREDEFINED.iter().any(|(known, ..)| *known == name)
}

/// Type of the values of a predefined label.
pub(crate) fn predefined_type(name: &str) -> Option<ValueType> {
    let known = PREDEFINED.iter().find(|(known, ..)| *known == name);
    known.map(|(_, value_type, _)| *value_type)
}

/// The values in the text of a label.
pub(crate) fn values(text: &str) -> impl Iterator<Item = &str> {
    text.split(VALUE_SEPARATOR)
}

/// The text of a label with these values.
pub(crate) fn joined<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            text.push(VALUE_SEPARATOR);
        }
        text.push_str(value.as_ref());
    }
    text
}

/// The types that a data folder declares. A file that is damaged is moved out of the way: the
/// labels themselves are in the storage files and become plain text.
fn read_types(path: &Path) -> Result<LabelFile, StorageError> {
    let max = u64::from(storage_format::limits::ENVELOPE_BODY_BYTES_MAX);
    let decoded = match read_small(path, max) {
        Ok(bytes) => LabelFile::decode(&bytes).map_err(StorageError::damaged(path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(LabelFile::default());
        }
        Err(error) => Err(StorageError::io("read", path)(error)),
    };
    match decoded {
        Err(error) if error.is_loss() => {
            let aside = set_aside(path)?;
            tracing::error!(
                %error, aside = %aside.display(),
                "the declared label types cannot be read: labels are plain text until their types \
                 are declared again, or a copy of the file is put back before a start"
            );
            Ok(LabelFile::default())
        }
        decoded => decoded,
    }
}

/// The declared and the predefined types.
#[derive(Debug)]
pub(crate) struct LabelTypes {
    folder: PathBuf,
    known: RwLock<BTreeMap<String, LabelType>>,
    /// One change of the file at a time.
    changing: tokio::sync::Mutex<()>,
    io_thread: IoThread,
}

impl LabelTypes {
    /// Reads the label file of the data folder, if there is one.
    pub(crate) fn load(folder: &Path, io_thread: IoThread) -> Result<Self, StorageError> {
        let file = read_types(&folder.join(LABEL_FILE))?;
        let predefined = PREDEFINED.map(|(name, value_type, several)| LabelType {
            name: name.to_owned(),
            value_type,
            several,
            values: Vec::new(),
        });
        let mut known: BTreeMap<_, _> = predefined
            .into_iter()
            .map(|known| (known.name.clone(), known))
            .collect();
        for declared in file.types {
            match known.get_mut(&declared.name) {
                Some(predefined) => predefined.values = declared.values,
                None => drop(known.insert(declared.name.clone(), declared)),
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            known: RwLock::new(known),
            changing: tokio::sync::Mutex::default(),
            io_thread,
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<LabelType> {
        self.known.read().get(name).cloned()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, LabelType> {
        self.known.read().clone()
    }

    /// Type of the values of a label with this name.
    pub(crate) fn value_type(&self, name: &str) -> ValueType {
        let known = self.known.read();
        known
            .get(name)
            .map_or(ValueType::String, |known| known.value_type)
    }

    /// Changes the types: on disk first, then in memory.
    pub(crate) async fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, LabelType>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let _changing = self.changing.lock().await;
        let mut known = self.all();
        change(&mut known)?;
        if known.len() > LABEL_TYPE_COUNT_MAX {
            return Err(StorageError::LimitReached {
                what: "label types",
                max: LABEL_TYPE_COUNT_MAX,
            });
        }
        let is_stored = |of: &&LabelType| !is_predefined(&of.name) || !of.values.is_empty();
        let file = LabelFile {
            types: known.values().filter(is_stored).cloned().collect(),
        };
        let path = self.folder.join(LABEL_FILE);
        let bytes = file.encode().map_err(StorageError::damaged(&path))?;
        let name = LABEL_FILE.to_owned();
        let published = self
            .io_thread
            .publish(self.folder.clone(), name, bytes.into())
            .await;
        published.map_err(StorageError::io("write", path))?;
        crate::fault_point!(async "labels.durable");
        *self.known.write() = known;
        Ok(())
    }

    /// The labels for a storage, each value in the canonical text of its type.
    pub(crate) fn checked(
        &self,
        labels: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, StorageError> {
        let labels = labels.into_iter().map(|(name, text)| {
            let text = self.checked_values(&name, values(&text))?;
            Ok((name, text))
        });
        labels.collect()
    }

    /// The text of a label with this name and these values.
    pub(crate) fn checked_values<'a>(
        &self,
        name: &str,
        values: impl Iterator<Item = &'a str>,
    ) -> Result<String, StorageError> {
        if name.trim().is_empty() {
            return Err(invalid("a label needs a name"));
        }
        if is_read_only(name) {
            return Err(invalid(format!(
                "`{name}` is set by the server and cannot be changed"
            )));
        }
        let (value_type, several) = match self.known.read().get(name) {
            Some(known) => (known.value_type, known.several),
            None => (ValueType::String, false),
        };
        let mut seen = BTreeSet::new();
        let mut texts = Vec::new();
        for text in values {
            let value = LabelValue::parse(value_type, text).ok_or_else(|| {
                let shown: String = text.chars().take(64).collect();
                invalid(format!(
                    "`{name}` has the value {shown:?}, which is not {}",
                    LabelValue::expected(value_type)
                ))
            })?;
            let text = value.text();
            if seen.insert(text.clone()) {
                texts.push(text);
            }
        }
        if texts.len() > 1 && !several {
            return Err(invalid(format!(
                "`{name}` has {} values, but its type allows one: declare it with several",
                texts.len()
            )));
        }
        if texts.len() > LABEL_VALUE_COUNT_MAX {
            return Err(invalid(format!(
                "`{name}` has {} values, the limit is {LABEL_VALUE_COUNT_MAX}",
                texts.len()
            )));
        }
        Ok(joined(texts))
    }
}

pub(crate) fn invalid(problem: impl Into<String>) -> StorageError {
    StorageError::Invalid {
        what: "label:",
        problem: problem.into(),
    }
}
