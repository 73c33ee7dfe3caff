//! What is wrong with a setting.

/// A setting with an invalid value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidSetting {
    pub(super) key: String,
    pub(super) what: String,
    pub(super) remedy: String,
}
