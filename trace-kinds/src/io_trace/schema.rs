//! The schema of I/O traces.

use std::sync::LazyLock;

use ::io_trace::{BlockType, Cause, FileClass, Operation};
use ctf::class::ClockClass;
use ctf::write::{EventId, FieldType, Schema, WriteError};
use ctf::{Plan, Procedure};
use uuid::Uuid;

/// Identifies the schema; any other schema has another UUID.
const SCHEMA: Uuid = Uuid::from_u128(0x7b0c_5d3e_91a4_4f0e_8a52_1d6f_c04e_0002);

/// The magic number of CTF packets.
const MAGIC: [u8; 4] = 0xc1fc_1fc1_u32.to_le_bytes();

/// The version of the schema in `trace_begin`.
pub(super) const VERSION: u64 = 2;

/// The labels of values that may be unknown, by their number.
pub(super) const CACHE: [&str; 3] = ["unknown", "hit", "miss"];
pub(super) const FOUND: [&str; 3] = ["unknown", "yes", "no"];

/// The schema and the ids of its event records.
pub(super) struct IoTraceSchema {
    pub(super) schema: Schema,
    /// By the number of the operation.
    pub(super) operations: [EventId; Operation::COUNT],
    pub(super) begin: EventId,
    pub(super) end: EventId,
}

/// The number of the class of `trace_begin`: classes are numbered in their order.
pub(super) const BEGIN: usize = Operation::COUNT;

pub(super) static SCHEMA_OF_TRACES: LazyLock<IoTraceSchema> =
    LazyLock::new(|| build().expect("the names and types of the schema are valid"));

/// The plan for reading packets of that schema.
pub(super) static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let metadata = SCHEMA_OF_TRACES.schema.metadata();
    let class = ctf::parse_metadata(&metadata).expect("metadata of the schema is valid");
    let procedure = Procedure::new(class).expect("metadata of the schema can be compiled");
    Plan::everything(&procedure)
});

const fn unsigned(bits: u8) -> FieldType {
    FieldType::Unsigned { bits }
}

fn words<'w>(words: impl Iterator<Item = &'w str>) -> FieldType {
    let labels = words.map(str::to_owned).zip(0..).collect();
    FieldType::Enumeration { bits: 8, labels }
}

fn of_operation() -> Vec<(&'static str, FieldType)> {
    vec![
        ("start", FieldType::Signed { bits: 64 }),
        ("latency", unsigned(64)),
        (
            "file_class",
            words(FileClass::ALL.iter().map(|class| class.name())),
        ),
        ("cause", words(Cause::ALL.iter().map(|cause| cause.name()))),
        ("path", FieldType::Text),
        ("thread", unsigned(32)),
        ("errno", unsigned(16)),
        ("has_offset", FieldType::Bool),
        ("offset", unsigned(64)),
        ("asked", unsigned(64)),
        ("done", unsigned(64)),
        ("cache", words(CACHE.into_iter())),
        ("request_id", FieldType::Text),
        ("requests", unsigned(32)),
    ]
}

fn of_block() -> [(&'static str, FieldType); 7] {
    [
        (
            "block_type",
            words(BlockType::ALL.iter().map(|block| block.name())),
        ),
        ("block_size", unsigned(64)),
        ("not_inserted", FieldType::Bool),
        ("leaf", FieldType::Hexadecimal { bits: 64 }),
        ("entries", unsigned(64)),
        ("immutable", FieldType::Bool),
        ("found", words(FOUND.into_iter())),
    ]
}

fn build() -> Result<IoTraceSchema, WriteError> {
    let mut schema = Schema::new(SCHEMA, ClockClass::new("wall"));
    schema.environment("tracer", "tracehold")?;
    let mut operations = [EventId(0); Operation::COUNT];
    for (id, operation) in operations.iter_mut().zip(Operation::ALL) {
        let mut fields = of_operation();
        if *operation == Operation::Lookup {
            fields.extend(of_block());
        }
        *id = schema.event(operation.name(), fields)?;
    }
    let begin = [
        ("version", unsigned(32)),
        ("clock", unsigned(64)),
        ("wall", FieldType::Signed { bits: 64 }),
        ("mode", FieldType::Text),
        ("bytes_max", unsigned(64)),
        ("blocks_one_in", unsigned(32)),
        ("operations", FieldType::Text),
        ("storages", FieldType::Text),
    ];
    let begin = schema.event("trace_begin", begin)?;
    let end = [
        ("reason", FieldType::Text),
        ("recorded", unsigned(64)),
        ("dropped", unsigned(64)),
        ("dropped_by_operation", FieldType::Text),
        ("overwritten", unsigned(64)),
    ];
    let end = schema.event("trace_end", end)?;
    Ok(IoTraceSchema {
        schema,
        operations,
        begin,
        end,
    })
}

/// The metadata of all I/O traces, as CTF 2.
pub fn metadata() -> Vec<u8> {
    SCHEMA_OF_TRACES.schema.metadata()
}

/// The same as TSDL, for readers of CTF 1.8.
pub fn tsdl() -> String {
    SCHEMA_OF_TRACES.schema.tsdl()
}

/// Whether `bytes` start like a packet of an I/O trace.
pub(crate) fn is_io_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(&preamble()[..20])
}

/// Bytes of header and context of a packet.
pub const PREAMBLE_BYTES: usize = 80;

/// The start of every packet: magic number, UUID, stream class and stream.
pub fn preamble() -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..20].copy_from_slice(SCHEMA.as_bytes());
    bytes
}

/// The length in bytes of the packet that starts with `preamble`; `None` if it is not of an I/O
/// trace.
pub fn packet_bytes(preamble: &[u8]) -> Option<u64> {
    let total = preamble.get(32..40).filter(|_| is_io_trace(preamble))?;
    Some(u64::from_le_bytes(total.try_into().ok()?) / 8)
}

pub(super) fn is_schema(uuid: Uuid) -> bool {
    uuid == SCHEMA
}
