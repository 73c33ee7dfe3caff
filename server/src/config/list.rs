//! Settings that are lists.

/// The items of a list with commas.
pub(crate) fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}
