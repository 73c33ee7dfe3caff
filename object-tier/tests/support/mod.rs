//! What several tests of the bucket use.

pub(crate) mod faulty_store;
pub(crate) mod random;
pub(crate) mod world;
