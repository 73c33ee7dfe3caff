//! Labels of storages, and the types that they have.

use std::{collections::BTreeMap, sync::Arc};

use storage_format::{
    StorageId,
    label_file::{LabelType, ValueType},
    limits::{LABEL_TYPE_COUNT_MAX, STORAGE_LABEL_COUNT_MAX},
    storage_file::StorageFile,
};

use super::{
    StorageInfo, label_values::derived_labels, registry::Registry, texts::check_label_texts,
};
use crate::{
    LabelValue, StorageError,
    catalog::Catalog,
    io_thread::IoThread,
    labels::{
        EXPLORED_BY, LEGAL_HOLD, LabelTypes, invalid, is_predefined, is_read_only, joined, values,
    },
    storage::Storage,
    writer::Services,
};

/// Values in use that are listed for one type.
const VALUE_COUNT_SHOWN: usize = 1000;

/// A label type and its use.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelTypeInfo {
    /// The type.
    pub label_type: LabelType,
    /// Whether it is predefined.
    pub is_predefined: bool,
    /// Whether the type was declared; if not, its values are text.
    pub is_declared: bool,
    /// Number of storages that have a label of this type.
    pub storages: u64,
    /// Values in use, with the number of storages; the first thousand.
    pub in_use: BTreeMap<String, u64>,
}

/// A label of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageLabel {
    /// Name of the type.
    pub name: String,
    /// Type of the values.
    pub value_type: ValueType,
    /// Whether a storage may have several values of it.
    pub several: bool,
    /// Whether the server derives it, so that it cannot be changed.
    pub is_read_only: bool,
    /// The values.
    pub values: Vec<LabelValue>,
}

/// The labels of storages, and the types of labels.
#[derive(Debug, Clone)]
pub struct Labels {
    registry: Arc<Registry>,
    label_types: Arc<LabelTypes>,
    io_thread: IoThread,
    catalog: Arc<Catalog>,
}

impl Labels {
    pub(super) fn new(registry: &Arc<Registry>, services: &Services) -> Self {
        Self {
            registry: Arc::clone(registry),
            label_types: Arc::clone(&services.labels),
            io_thread: services.io_thread.clone(),
            catalog: Arc::clone(&services.catalog),
        }
    }

    /// All label types, by name: predefined, declared, and undeclared ones in use.
    #[must_use]
    pub fn types(&self) -> Vec<LabelTypeInfo> {
        let declared = self.label_types.all().into_values().map(|label_type| {
            let info = LabelTypeInfo {
                is_predefined: is_predefined(&label_type.name),
                is_declared: true,
                storages: 0,
                in_use: BTreeMap::new(),
                label_type,
            };
            (info.label_type.name.clone(), info)
        });
        let mut types: BTreeMap<String, LabelTypeInfo> = declared.collect();
        for storage in self.registry.all() {
            for (name, text) in storage.info().labels {
                let info = types.entry(name.clone()).or_insert_with(|| LabelTypeInfo {
                    label_type: LabelType {
                        name,
                        value_type: ValueType::String,
                        several: false,
                        values: Vec::new(),
                    },
                    is_predefined: false,
                    is_declared: false,
                    storages: 0,
                    in_use: BTreeMap::new(),
                });
                info.storages = info.storages.saturating_add(1);
                for value in values(&text) {
                    if let Some(count) = info.in_use.get_mut(value) {
                        *count = count.saturating_add(1);
                    } else if info.in_use.len() < VALUE_COUNT_SHOWN {
                        info.in_use.insert(value.to_owned(), 1);
                    }
                }
            }
        }
        types.into_values().collect()
    }

    /// One label type.
    ///
    /// # Errors
    /// When it is not declared and no storage has such a label.
    pub fn get_type(&self, name: &str) -> Result<LabelTypeInfo, StorageError> {
        let mut types = self.types().into_iter();
        let found = types.find(|info| info.label_type.name == name);
        found.ok_or_else(|| StorageError::LabelNotFound(name.chars().take(64).collect()))
    }

    /// Declares a label type, or changes one.
    ///
    /// # Errors
    /// When it exceeds a limit, a suggested value is not of its type, it would change a
    /// predefined type, a storage has values that are not of the type, or it cannot be written.
    pub async fn declare_type(
        &self,
        mut declared: LabelType,
    ) -> Result<LabelTypeInfo, StorageError> {
        check_label_texts(
            std::iter::once(&declared.name)
                .chain(&declared.values)
                .map(String::as_str),
        )?;
        if declared.name.trim().is_empty() || declared.name.contains([':', '=', '<', '>', '!']) {
            return Err(invalid("a label type needs a name without : = < > !"));
        }
        if declared.values.len() > LABEL_TYPE_COUNT_MAX {
            return Err(invalid(format!(
                "a label type may suggest at most {LABEL_TYPE_COUNT_MAX} values"
            )));
        }
        let parsed = declared.values.iter().map(|text| {
            let value = LabelValue::parse(declared.value_type, text);
            value.map(|value| value.text()).ok_or_else(|| {
                invalid(format!(
                    "`{text}` cannot be suggested: it is not a value of the type"
                ))
            })
        });
        declared.values = parsed.collect::<Result<_, _>>()?;
        declared.values.sort();
        declared.values.dedup();
        let used = self.get_type(&declared.name).ok();
        if let Some(used) = &used {
            let is_other = (used.label_type.value_type, used.label_type.several)
                != (declared.value_type, declared.several);
            if used.is_predefined && is_other {
                return Err(StorageError::LabelTypeFixed(declared.name));
            }
            let has_several = self.has_several(&declared.name);
            let fits = |text: &String| LabelValue::parse(declared.value_type, text).is_some();
            if is_other && (!used.in_use.keys().all(fits) || has_several && !declared.several) {
                return Err(StorageError::LabelInUse {
                    name: declared.name,
                    storages: used.storages,
                });
            }
        }
        let name = declared.name.clone();
        let declare = |known: &mut BTreeMap<String, LabelType>| {
            known.insert(declared.name.clone(), declared);
            Ok(())
        };
        self.label_types.change(declare).await?;
        self.get_type(&name)
    }

    fn has_several(&self, name: &str) -> bool {
        let storages = self.registry.all();
        let mut labels = storages
            .iter()
            .filter_map(|storage| storage.info().labels.remove(name));
        labels.any(|text| values(&text).nth(1).is_some())
    }

    /// Removes a label type, or one value of it. With `removes` it is first removed from all
    /// storages.
    ///
    ///
    /// # Errors
    /// When there is none, it is predefined, or a storage has it and `removes` is false.
    pub async fn forget(
        &self,
        name: &str,
        value: Option<&str>,
        removes: bool,
    ) -> Result<(), StorageError> {
        let known = self.get_type(name)?;
        if is_read_only(name) || (known.is_predefined && value.is_none()) {
            return Err(StorageError::LabelTypeFixed(name.to_owned()));
        }
        let storages = match value {
            None => known.storages,
            Some(value) => known.in_use.get(value).copied().unwrap_or(0),
        };
        let is_suggested = |value| known.label_type.values.iter().any(|known| known == value);
        if value.is_some_and(|value| storages == 0 && !is_suggested(value)) {
            return Err(StorageError::LabelNotFound(name.to_owned()));
        }
        // A hold ends storage by storage, so that nobody ends one that is not meant.
        if storages > 0 && (!removes || name == LEGAL_HOLD) {
            return Err(StorageError::LabelInUse {
                name: name.to_owned(),
                storages,
            });
        }
        let mut holders = self.registry.all();
        holders.retain(|storage| holds(storage, name, value));
        // Nothing changes when it cannot be removed everywhere.
        holders
            .iter()
            .try_for_each(|storage| storage.check_ready())?;
        for storage in holders {
            crate::fault_point!(async "labels.forgetting");
            match self.remove(storage.id, name, value).await {
                // The storage may have been deleted, or have no such label.
                Ok(_) | Err(StorageError::StorageNotFound(_) | StorageError::LabelNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        crate::fault_point!(async "labels.unused");
        let forget = |types: &mut BTreeMap<String, LabelType>| {
            match (types.get_mut(name), value) {
                (Some(known), Some(value)) => known.values.retain(|known| known != value),
                _ => drop(types.remove(name)),
            }
            Ok(())
        };
        self.label_types.change(forget).await
    }

    /// The labels of a storage, including those that the server derives.
    ///
    /// # Errors
    /// When there is no such storage.
    pub fn of_storage(&self, id: StorageId) -> Result<Vec<StorageLabel>, StorageError> {
        let info = self.registry.known(id)?.info();
        let derived = derived_labels(&info).map(|(name, value)| (name.to_owned(), value.text()));
        let derived: Vec<_> = derived.collect();
        let all = derived.into_iter().chain(info.labels);
        let labels = all.map(|(name, text)| {
            let known = self.label_types.get(&name);
            let value_type = known
                .as_ref()
                .map_or(ValueType::String, |known| known.value_type);
            let read = |text: &str| {
                // A label may be older than the declaration of its type.
                let value = LabelValue::parse(value_type, text);
                value.unwrap_or_else(|| LabelValue::String(text.to_owned()))
            };
            StorageLabel {
                value_type,
                several: known.is_some_and(|known| known.several),
                is_read_only: is_read_only(&name),
                values: values(&text).map(read).collect(),
                name,
            }
        });
        Ok(labels.collect())
    }

    /// Sets a label of a storage: replaces its values of the type, or, with `adds` and if
    /// the type allows several, adds to them.
    ///
    /// # Errors
    /// When there is no such storage, a value is not of the type, there would be too many, or it
    /// cannot be written.
    pub async fn set(
        &self,
        id: StorageId,
        name: &str,
        added: &[String],
        adds: bool,
    ) -> Result<StorageInfo, StorageError> {
        check_label_texts(std::iter::once(name).chain(added.iter().map(String::as_str)))?;
        if added.is_empty() {
            return Err(invalid(format!("`{name}` has no value")));
        }
        let types = &self.label_types;
        let keeps = adds && types.get(name).is_some_and(|known| known.several);
        let storage = self.registry.find(id)?;
        let change = |file: &mut StorageFile| {
            let before = file.labels.get(name).filter(|_| keeps);
            let before = before.into_iter().flat_map(|text| values(text));
            let all = before.chain(added.iter().map(String::as_str));
            let text = types.checked_values(name, all)?;
            file.labels.insert(name.to_owned(), text);
            if file.labels.len() > STORAGE_LABEL_COUNT_MAX {
                Err(invalid(format!(
                    "a storage may have at most {STORAGE_LABEL_COUNT_MAX} labels"
                )))
            } else {
                Ok(())
            }
        };
        self.change(&storage, change).await
    }

    /// Removes a label of a storage, or one value of it.
    ///
    /// # Errors
    /// When there is no such storage, it has no such label, or it cannot be written.
    pub async fn remove(
        &self,
        id: StorageId,
        name: &str,
        value: Option<&str>,
    ) -> Result<StorageInfo, StorageError> {
        let storage = self.registry.find(id)?;
        let not_found = || StorageError::LabelNotFound(name.chars().take(64).collect());
        if !holds(&storage, name, value) {
            return Err(not_found());
        }
        let change = |file: &mut StorageFile| {
            let text = file.labels.get(name).ok_or_else(not_found)?;
            let left: Vec<_> = values(text)
                .filter(|&found| value.is_some_and(|value| value != found))
                .collect();
            if left.is_empty() {
                drop(file.labels.remove(name))
            } else {
                let left = joined(left);
                file.labels.insert(name.to_owned(), left);
            }
            Ok(())
        };
        self.change(&storage, change).await
    }

    /// Adds a reader who gave a name to the labels of a storage.
    ///
    /// # Errors
    /// When there is no such storage, the name is not a valid label, or it cannot be written.
    pub async fn note_reader(&self, id: StorageId, reader: &str) -> Result<(), StorageError> {
        let info = self.registry.find(id)?.info();
        let known = info.labels.get(EXPLORED_BY);
        if known.is_some_and(|text| values(text).any(|known| known == reader)) {
            return Ok(());
        }
        self.set(id, EXPLORED_BY, &[reader.to_owned()], true)
            .await?;
        Ok(())
    }

    async fn change(
        &self,
        storage: &Storage,
        change: impl FnOnce(&mut StorageFile) -> Result<(), StorageError>,
    ) -> Result<StorageInfo, StorageError> {
        let changed = storage.change(&self.io_thread, &self.catalog, change);
        changed.await?;
        Ok(storage.info())
    }
}

/// Whether a storage has a label, or one value of it.
fn holds(storage: &Storage, name: &str, value: Option<&str>) -> bool {
    let labels = storage.info().labels;
    let text = labels.get(name);
    text.is_some_and(|text| value.is_none_or(|value| values(text).any(|found| found == value)))
}
