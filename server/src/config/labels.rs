//! Settings that select storages by label.

use storage_core::{Comparison, LEGAL_HOLD, LabelFilter, check_label_filter};

use super::invalid::InvalidSetting;
use super::settings::Config;

/// What a filter by label may be.
const ALLOWED: &str = "set it to a label as ?label= selects it, such as use_case:ci (NAME, \
                       NAME:VALUE, or NAME, one of = != < <= > >=, and a value), or leave it empty";

/// The labels that select nothing, whatever labels storages have: the setting would silently have
/// no effect.
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
            let what = refusal(text).or_else(|| {
                let is_kept =
                    key == "retention.label" && LabelFilter::parse(text).name == LEGAL_HOLD;
                is_kept
                    .then(|| format!("and storages with the label {LEGAL_HOLD} are never deleted"))
            })?;
            Some(InvalidSetting {
                key: key.to_owned(),
                what: format!("is {text:?}, {what}"),
                remedy: ALLOWED.to_owned(),
            })
        })
        .collect()
}

/// Why no storage can match the filter `text`.
fn refusal(text: &str) -> Option<String> {
    if let Some(sign) = unknown_sign(text) {
        return Some(format!("and {sign} compares no labels"));
    }
    let filter = LabelFilter::parse(text);
    if let Err(refused) = check_label_filter(&filter) {
        return Some(format!("which no storage can have: {refused}"));
    }
    match filter.value {
        Some((Comparison::Less, value)) if value.is_empty() => {
            Some("and no text is before the empty one".to_owned())
        }
        _ => None,
    }
}

/// The sign of a comparison that does not exist, such as `==` or `=>`. A value that begins like a
/// sign is written behind `:`.
fn unknown_sign(text: &str) -> Option<&str> {
    const SIGNS: [char; 5] = ['=', '<', '>', '!', '~'];
    let begin = text.find([':', '=', '<', '>', '!'])?;
    let rest = &text[begin..];
    let sign = &rest[..rest.find(|c| !SIGNS.contains(&c)).unwrap_or(rest.len())];
    // A single `!` is a part of the name.
    let is_known = matches!(sign, "" | "!" | "=" | "!=" | "<" | "<=" | ">" | ">=");
    (!is_known).then_some(sign)
}
