//! Settings that select storages by label.

use storage_core::{LabelFilter, check_label_filter};

use super::invalid::InvalidSetting;
use super::settings::Config;

/// The labels that no storage can have: the setting would silently select nothing.
pub(super) fn invalid_labels(config: &Config) -> Vec<InvalidSetting> {
    let store = &config.object_store;
    let labels = [
        ("retention.label", &config.retention.label),
        ("object_store.upload_label", &store.upload_label),
        ("object_store.table_label", &store.table_label),
    ];
    let given = labels.into_iter().filter(|(_, text)| !text.is_empty());
    given
        .filter_map(|(key, text)| {
            // A value that begins with `=` is written behind `:`.
            let sign = text.find([':', '=', '<', '>', '!']);
            let what = if sign.is_some_and(|at| text[at..].starts_with("==")) {
                format!("is {text:?}, and == compares no labels")
            } else {
                let refused = check_label_filter(&LabelFilter::parse(text)).err()?;
                format!("is {text:?}, which no storage can have: {refused}")
            };
            Some(InvalidSetting {
                key: key.to_owned(),
                what,
                remedy: "set it to a label as ?label= selects it, such as use_case:ci, or leave \
                         it empty"
                    .to_owned(),
            })
        })
        .collect()
}
