//! Limits of the texts that users give to storages and labels.

use std::collections::BTreeMap;

use storage_format::{
    label_file::ValueType,
    limits::{
        LABEL_BYTES_MAX, STORAGE_DESCRIPTION_BYTES_MAX, STORAGE_LABEL_COUNT_MAX,
        STORAGE_NAME_BYTES_MAX,
    },
};

use crate::{
    LabelFilter, LabelValue, StorageError,
    labels::{invalid, predefined_type},
};

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

/// Checks a filter by label before the declared types are known: refuses what no label can match,
/// whatever types are declared.
///
/// # Errors
/// When no label can have the name or the value, or the value is not of the predefined type.
pub fn check_label_filter(filter: &LabelFilter) -> Result<(), StorageError> {
    let value = filter.value.as_ref().map(|(_, value)| value.as_str());
    if filter.name.trim().is_empty() {
        return Err(invalid("a label needs a name"));
    }
    check_label_texts(std::iter::once(filter.name.as_str()).chain(value))?;
    let value_type = match predefined_type(&filter.name) {
        // A time frame is compared with an instant.
        Some(ValueType::TimeFrame) => ValueType::Date,
        Some(other) => other,
        None => return Ok(()),
    };
    match value {
        Some(value) if LabelValue::parse(value_type, value).is_none() => Err(invalid(format!(
            "{value:?} is not {}",
            LabelValue::expected(value_type)
        ))),
        _ => Ok(()),
    }
}
