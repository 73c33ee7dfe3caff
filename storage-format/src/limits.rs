//! Limits of the formats, each with its unit.
//!
//! A reader rejects what exceeds them before it allocates memory; a writer never produces it.
//! Operating limits (queues, budgets, time-outs) are in the configuration of the server.

/// Longest payload of one packet, in bytes, raw or stored.
pub const PACKET_BYTES_MAX: u32 = 256 << 20;
/// Longest batch of a log, in bytes.
pub const LOG_BATCH_BYTES_MAX: u64 = 1 << 29;
/// Longest agent or stream id, in bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Longest body of a storage, agent or local file, in bytes.
pub const ENVELOPE_BODY_BYTES_MAX: u32 = 256 << 20;
/// Longest trace metadata of one agent, in bytes.
pub const AGENT_METADATA_BYTES_MAX: usize = 64 << 20;
/// Largest number of attributes of one agent.
pub const AGENT_ATTRIBUTE_COUNT_MAX: usize = 1024;
/// Longest footer of an index part, in bytes.
pub const INDEX_FOOTER_BYTES_MAX: u32 = 256 << 20;
/// Largest number of extents of one leaf in an index part.
pub const INDEX_EXTENT_COUNT_MAX: u32 = 16 << 20;
/// Largest number of data files of a storage.
pub const DATA_FILE_COUNT_MAX: u32 = 1 << 20;
/// Largest number of packets in one block of an index part.
pub const INDEX_BLOCK_PACKET_COUNT_MAX: u32 = 16 << 20;
/// Longest name of a storage, in bytes.
pub const STORAGE_NAME_BYTES_MAX: usize = 256;
/// Longest description of a storage, in bytes.
pub const STORAGE_DESCRIPTION_BYTES_MAX: usize = 4096;
/// Largest number of labels of one storage.
pub const STORAGE_LABEL_COUNT_MAX: usize = 256;
/// Largest number of values of one label of one storage.
pub const LABEL_VALUE_COUNT_MAX: usize = 64;
/// Largest number of label types, and of values that are suggested for one type.
pub const LABEL_TYPE_COUNT_MAX: usize = 1024;
/// Longest key or value of a label or attribute, in bytes.
pub const LABEL_BYTES_MAX: usize = 1024;
