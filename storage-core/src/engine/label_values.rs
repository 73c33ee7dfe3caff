//! The labels of a storage: those that users gave it, and those that the server derives.

use storage_format::storage_file::StorageState;

use super::StorageInfo;
use crate::{
    LabelFilter, LabelValue,
    labels::{CREATION_DATE, DATA_TIME_FRAME, LabelTypes, values},
};

/// The labels that the server derives from the storage itself.
pub(super) fn derived_labels(
    info: &StorageInfo,
) -> impl Iterator<Item = (&'static str, LabelValue)> {
    let frame = info
        .totals
        .time_span
        .filter(|_| info.state == StorageState::Finalized);
    let frame = frame.map(|(begin, end)| (DATA_TIME_FRAME, LabelValue::TimeFrame(begin, end)));
    std::iter::once((CREATION_DATE, LabelValue::Date(info.created))).chain(frame)
}

/// Whether a storage has a label that matches `filter`.
pub(super) fn has_label(types: &LabelTypes, info: &StorageInfo, filter: &LabelFilter) -> bool {
    let value_type = types.value_type(&filter.name);
    let holds = |text: &str| {
        filter
            .value
            .as_ref()
            .is_none_or(|(how, wanted)| how.compare(value_type, text, wanted).unwrap_or(false))
    };
    let own = info.labels.get(&filter.name);
    own.is_some_and(|text| values(text).any(holds))
        || derived_labels(info).any(|(name, value)| name == filter.name && holds(&value.text()))
}
