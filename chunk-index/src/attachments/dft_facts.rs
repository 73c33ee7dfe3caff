//! `dft.facts`: what every reader of a DFTracer file needs.
//!
//! ```text
//! version u8 (2) | unit of times u8 (0 ns, 1 µs, 2 ms, 3 s) | metadata records u64
//! | unreadable lines u64 | for each kind of hash the least and the greatest text that its hashes
//! represent: u8 (0 without any, else 1), then length u32 and bytes of both
//! ```

use super::fields::{FieldReader, put_text};
use super::{AttachmentError, StoredUnit};

const VERSION: u8 = 2;

/// Kinds of hashes that DFTracer declares: file paths, host names, other text.
pub const HASH_KINDS: usize = 3;

/// What every reader of a DFTracer file needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DftFacts {
    /// Unit of its times.
    pub unit: StoredUnit,
    /// Metadata records. Events are counted by the chunks.
    pub metadata: u64,
    /// Lines that cannot be read.
    pub broken: u64,
    /// The least and the greatest text that the hashes of each kind represent; `None` for a kind
    /// without hashes.
    pub text_limits: [Option<[Box<[u8]>; 2]>; HASH_KINDS],
}

impl DftFacts {
    /// Name of the attachment.
    pub const NAME: &str = "dft.facts";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.unit.code()];
        out.extend_from_slice(&self.metadata.to_le_bytes());
        out.extend_from_slice(&self.broken.to_le_bytes());
        for limits in &self.text_limits {
            out.push(u8::from(limits.is_some()));
            for text in limits.iter().flatten() {
                put_text(&mut out, text);
            }
        }
        out
    }

    /// Reads what [`DftFacts::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged.
    pub fn decode(bytes: &[u8]) -> Result<DftFacts, AttachmentError> {
        let mut reader = FieldReader::open(DftFacts::NAME, VERSION, bytes)?;
        let unit = StoredUnit::from_code(reader.byte()?);
        let mut facts = DftFacts {
            unit: unit.ok_or_else(|| reader.damaged("unknown unit of times"))?,
            metadata: reader.u64()?,
            broken: reader.u64()?,
            text_limits: Default::default(),
        };
        for limits in &mut facts.text_limits {
            *limits = match reader.byte()? {
                0 => None,
                _ => Some([reader.text()?.into(), reader.text()?.into()]),
            };
        }
        reader.end()?;
        Ok(facts)
    }
}
