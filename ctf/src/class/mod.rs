//! The trace class: the content of metadata as immutable data.
//!
//! The parsers of both metadata dialects produce a trace class, and all decoders use one. The
//! classes of all fields are in one table and refer to each other by [`FieldId`], so a trace class
//! is flat, cheap to share between threads and has no recursive drop. [`TraceClassBuilder`] is the
//! only way to create one: it resolves locations to save slots and checks the rules of CTF.
//!
//! **Lengths and selectors.** A field whose value is needed by later fields has the [`SlotId`]s to
//! store its value in ([`FieldClass::slots`]). The field that needs it has the slot in its
//! [`Dependency`]. A location that leads through a variant has several targets, which all store
//! into the same slot. Values are stored as the 64 bits of the unsigned or (two's complement)
//! signed integer, booleans as 0 or 1.

mod assembly;
mod builder;
mod children;
mod clock;
mod error;
mod field;
mod integer;
mod location;
mod resolution;
mod rules;
mod stream;
mod trace;
mod value;

pub(crate) use builder::PLAIN_DEPTH_MAX;
pub use builder::{FIELD_COUNT_BASE, FIELD_DEPTH_MAX, TraceClassBuilder};
pub use clock::{ClockClass, ClockOrigin};
pub use error::{BuildError, BuildFrame, Subject};
pub use field::{
    ArrayClass, BitMapClass, BlobClass, BoolClass, Encoding, FieldClass, FieldId, FieldKind, Flag,
    FloatClass, Length, Member, OptionalClass, Role, Roles, SelectorRanges, StringClass,
    StructClass, VariantClass, VariantOption, VariantOptions,
};
pub use integer::{
    BitOrder, ByteOrder, DisplayBase, FixedBits, IntRange, IntegerClass, Mapping, Mappings,
    RangeSet,
};
pub use location::{Dependency, Location, PathStep, Scope, SlotId};
pub use stream::{
    ClockId, EventClass, EventClassIndex, Identity, LOG_LEVELS, StreamClass, StreamClassIndex,
};
pub use trace::{EnvironmentValue, MajorVersion, TraceClass};
pub use value::{Attributes, Value};

#[cfg(test)]
mod tests;
