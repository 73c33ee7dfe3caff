//! The two sides of a slice.

use std::hash::Hash;

/// Something that begins or ends a slice.
pub(super) trait Side: Copy {
    type Track: Copy + Eq + Hash;
    /// A name or a category; the default is none.
    type Text: Copy + Eq + Hash + Default;

    fn ts(&self) -> i64;

    fn is_begin(&self) -> bool;

    fn track(&self) -> Self::Track;

    fn name(&self) -> Self::Text;

    fn cat(&self) -> Self::Text;
}
