//! Strict and lenient parsing of metadata.

/// How to treat violations of the specification that are common in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leniency {
    /// Follow the specifications: reject unknown entries.
    #[default]
    Strict,
    /// Follow Babeltrace 2.
    ///
    /// Skip unknown attributes and scopes of TSDL blocks with a warning. Accept character
    /// constants, events without any data, labels that do not fit their enumeration, locations
    /// that lead out of a named type, named types without a `;` in a structure, and packetized
    /// metadata with extra bytes or without all padding at the end. Event classes without the id
    /// of a stream class belong to the only one. Refuse keywords as names of fields.
    Lenient,
}
