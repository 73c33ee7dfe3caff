//! Names in CTF 2 metadata.

use crate::class::{BitOrder, ByteOrder, Encoding, Role, Scope};

/// Kinds of field classes, by the value of `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BitArray,
    BitMap,
    Bool,
    Unsigned,
    Signed,
    Float,
    VariableUnsigned,
    VariableSigned,
    NullTerminatedString,
    StaticString,
    DynamicString,
    StaticBlob,
    DynamicBlob,
    StaticArray,
    DynamicArray,
    Struct,
    Optional,
    Variant,
}

pub(super) const KINDS: [(&str, Kind); 18] = [
    ("dynamic-length-array", Kind::DynamicArray),
    ("dynamic-length-blob", Kind::DynamicBlob),
    ("dynamic-length-string", Kind::DynamicString),
    ("fixed-length-bit-array", Kind::BitArray),
    ("fixed-length-bit-map", Kind::BitMap),
    ("fixed-length-boolean", Kind::Bool),
    ("fixed-length-floating-point-number", Kind::Float),
    ("fixed-length-signed-integer", Kind::Signed),
    ("fixed-length-unsigned-integer", Kind::Unsigned),
    ("null-terminated-string", Kind::NullTerminatedString),
    ("optional", Kind::Optional),
    ("static-length-array", Kind::StaticArray),
    ("static-length-blob", Kind::StaticBlob),
    ("static-length-string", Kind::StaticString),
    ("structure", Kind::Struct),
    ("variable-length-signed-integer", Kind::VariableSigned),
    ("variable-length-unsigned-integer", Kind::VariableUnsigned),
    ("variant", Kind::Variant),
];

pub(super) const BYTE_ORDERS: [(&str, ByteOrder); 2] = [
    ("big-endian", ByteOrder::Big),
    ("little-endian", ByteOrder::Little),
];

pub(super) const BIT_ORDERS: [(&str, BitOrder); 2] = [
    ("first-to-last", BitOrder::FirstToLast),
    ("last-to-first", BitOrder::LastToFirst),
];

pub(super) const ENCODINGS: [(&str, Encoding); 5] = [
    ("utf-8", Encoding::Utf8),
    ("utf-16be", Encoding::Utf16Be),
    ("utf-16le", Encoding::Utf16Le),
    ("utf-32be", Encoding::Utf32Be),
    ("utf-32le", Encoding::Utf32Le),
];

pub(super) const SCOPES: [(&str, Scope); 6] = [
    ("packet-header", Scope::PacketHeader),
    ("packet-context", Scope::PacketContext),
    ("event-record-header", Scope::EventHeader),
    ("event-record-common-context", Scope::EventCommonContext),
    ("event-record-specific-context", Scope::EventSpecificContext),
    ("event-record-payload", Scope::EventPayload),
];

pub(super) const INTEGER_ROLES: [(&str, Role); 10] = [
    ("data-stream-class-id", Role::StreamClassId),
    ("data-stream-id", Role::StreamId),
    ("default-clock-timestamp", Role::ClockTimestamp),
    (
        "discarded-event-record-counter-snapshot",
        Role::DiscardedEvents,
    ),
    ("event-record-class-id", Role::EventClassId),
    ("packet-content-length", Role::PacketContentLength),
    (
        "packet-end-default-clock-timestamp",
        Role::PacketEndTimestamp,
    ),
    ("packet-magic-number", Role::PacketMagicNumber),
    ("packet-sequence-number", Role::PacketSequenceNumber),
    ("packet-total-length", Role::PacketTotalLength),
];

pub(super) const BLOB_ROLES: [(&str, Role); 1] = [("metadata-stream-uuid", Role::MetadataUuid)];

pub(super) const BITS: [&str; 4] = ["length", "byte-order", "bit-order", "alignment"];
pub(super) const INTEGER: [&str; 2] = ["preferred-display-base", "mappings"];
pub(super) const LENGTH_LOCATION: &str = "length-field-location";
pub(super) const SELECTOR_LOCATION: &str = "selector-field-location";
