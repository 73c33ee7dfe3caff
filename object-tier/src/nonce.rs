//! Random numbers in objects, by which their creators recognize them.

use uuid::Uuid;

/// A number that nobody else has. All of this crate come from here.
pub(crate) fn nonce() -> Uuid {
    Uuid::new_v4()
}
