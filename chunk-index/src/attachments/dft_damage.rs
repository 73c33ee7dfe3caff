//! `dft.damage`: the parts of a compressed DFTracer file that were skipped or are unverified. An
//! index of an intact file has none.
//!
//! ```text
//! version u8 (1) | parts u32 | for each part its offset in the file u64, its end u64, and the
//! reason u8
//! ```

use super::AttachmentError;
use super::fields::{FieldReader, put_length};

const VERSION: u8 = 1;

/// A damaged part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedPart {
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// Offset in the file of the byte after it.
    pub end: u64,
    /// Code of the reason; the reader of the kind defines it.
    pub reason: u8,
}

/// The damaged parts of a file, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DftDamage(pub Vec<DamagedPart>);

impl DftDamage {
    /// Name of the attachment.
    pub const NAME: &str = "dft.damage";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_length(&mut out, self.0.len());
        for part in &self.0 {
            assert!(
                part.offset <= part.end,
                "a part does not end before it begins"
            );
            out.extend_from_slice(&part.offset.to_le_bytes());
            out.extend_from_slice(&part.end.to_le_bytes());
            out.push(part.reason);
        }
        out
    }

    /// Reads what [`DftDamage::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged.
    pub fn decode(bytes: &[u8]) -> Result<DftDamage, AttachmentError> {
        let mut reader = FieldReader::open(DftDamage::NAME, VERSION, bytes)?;
        let mut parts = Vec::new();
        for _ in 0..reader.length()? {
            parts.push(DamagedPart {
                offset: reader.u64()?,
                end: reader.u64()?,
                reason: reader.byte()?,
            });
        }
        if parts.iter().any(|part| part.offset > part.end) {
            return Err(reader.damaged("a part ends before it begins"));
        }
        reader.end()?;
        Ok(DftDamage(parts))
    }
}
