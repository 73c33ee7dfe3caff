//! New identifiers: the only module of this crate that reads a clock. The time of day comes from
//! the engine.

use uuid::Uuid;

/// A new identifier; later ones sort after earlier ones.
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
