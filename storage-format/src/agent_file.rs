//! The agent file (`.agent`): one agent with its attributes, streams and trace metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AgentId, Codec, FormatError, FormatErrorKind, Kind, LeafType, StreamId, envelope};

const MAGIC: [u8; 8] = *b"THAGENT\0";
const WHAT: &str = "agent file";

/// The content of an agent file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFile {
    /// The agent.
    pub id: AgentId,
    /// Name for people.
    pub name: String,
    /// The machine on which the agent runs, as reported by the agent.
    pub host: String,
    /// Other attributes that the agent reports.
    pub attributes: BTreeMap<String, String>,
    /// Its streams, sorted by id.
    pub streams: Vec<StreamSpec>,
    /// Trace metadata as the agent sent it (TSDL or CTF 2), if it did.
    pub metadata: Option<Vec<u8>>,
}

/// Declaration of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// The stream.
    pub id: StreamId,
    /// Kind of its packets; never changes.
    pub kind: Kind,
    /// What the index records of its packets.
    pub leaf_type: LeafType,
    /// How its payloads are stored.
    pub codec: Codec,
}

impl AgentFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        assert!(
            self.is_sorted(),
            "streams are searched by id, so they are sorted"
        );
        envelope::encode(WHAT, MAGIC, self)
    }

    /// Decodes an agent file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let file: Self = envelope::decode(WHAT, MAGIC, bytes)?;
        if file.is_sorted() {
            return Ok(file);
        }
        let kind = FormatErrorKind::Field { name: "streams" };
        Err(FormatError::new(WHAT, 0, kind))
    }

    /// Checks that this is the file of agent `id`.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_id(&self, id: &AgentId) -> Result<(), FormatError> {
        if self.id == *id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 0, FormatErrorKind::Foreign))
    }

    fn is_sorted(&self) -> bool {
        self.streams.is_sorted_by(|a, b| a.id < b.id)
    }
}
