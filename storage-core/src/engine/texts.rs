//! Limits of the texts that users give to storages and labels.

use std::collections::BTreeMap;

use storage_format::limits::{
    LABEL_BYTES_MAX, STORAGE_DESCRIPTION_BYTES_MAX, STORAGE_LABEL_COUNT_MAX, STORAGE_NAME_BYTES_MAX,
};

use crate::StorageError;

/// Refuses a text that is too long or has control characters.
pub(super) fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), StorageError> {
    if text.len() > max {
        let problem = format!("has {} bytes, the limit is {max}", text.len());
        return Err(StorageError::Invalid { what, problem });
    }
    if text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        let problem = "has control characters".to_owned();
        return Err(StorageError::Invalid { what, problem });
    }
    Ok(())
}

pub(super) fn check_texts(
    name: Option<&str>,
    description: Option<&str>,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<(), StorageError> {
    if let Some(name) = name {
        check_length("name", name, STORAGE_NAME_BYTES_MAX)?;
        if name.trim().is_empty() {
            let problem = "is empty".to_owned();
            return Err(StorageError::Invalid {
                what: "name",
                problem,
            });
        }
    }
    check_length(
        "description",
        description.unwrap_or(""),
        STORAGE_DESCRIPTION_BYTES_MAX,
    )?;
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() > STORAGE_LABEL_COUNT_MAX {
        let problem = format!(
            "are {}, the limit is {STORAGE_LABEL_COUNT_MAX}",
            labels.len()
        );
        return Err(StorageError::Invalid {
            what: "labels",
            problem,
        });
    }
    let names = labels.keys().map(String::as_str);
    check_label_texts(names.chain(labels.values().flat_map(|text| crate::labels::values(text))))
}

/// Checks names and single values of labels.
pub(super) fn check_label_texts<'a>(
    mut texts: impl Iterator<Item = &'a str>,
) -> Result<(), StorageError> {
    texts.try_for_each(|text| check_length("label", text, LABEL_BYTES_MAX))
}
