//! What of a gzip file cannot be read, or cannot be verified.

use std::fmt;

/// A part of a gzip file whose text is skipped or unverified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GzipDamage {
    /// Offset in the file of the member, or of the bytes that are none.
    pub offset: u64,
    /// Offset in the file of the next member that is read, or the end of the file.
    pub end: u64,
    /// What is wrong.
    pub reason: DamageReason,
}

/// What is wrong with a part of a gzip file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageReason {
    /// The data of a member is invalid, or does not match its checksum.
    Member,
    /// The bytes are not a member.
    NotAMember,
    /// The file ends inside a member: its writer was killed. The text before the end is read, but
    /// the checksum that would verify it is missing.
    Torn,
    /// The file has too many damaged members.
    TooMany,
}

impl DamageReason {
    /// The code of the reason in files.
    pub fn code(self) -> u8 {
        match self {
            DamageReason::Member => 0,
            DamageReason::NotAMember => 1,
            DamageReason::Torn => 2,
            DamageReason::TooMany => 3,
        }
    }

    /// The reason with this code.
    pub fn from_code(code: u8) -> Option<DamageReason> {
        [
            DamageReason::Member,
            DamageReason::NotAMember,
            DamageReason::Torn,
            DamageReason::TooMany,
        ]
        .into_iter()
        .find(|reason| reason.code() == code)
    }
}

impl fmt::Display for GzipDamage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GzipDamage { offset, end, .. } = self;
        let what = match self.reason {
            DamageReason::Member => "the gzip member is damaged",
            DamageReason::NotAMember => "the following bytes are not a gzip member",
            DamageReason::TooMany => "there are too many damaged gzip members",
            DamageReason::Torn => {
                return write!(
                    out,
                    "byte {offset}: the file ends inside the gzip member; its lines up to there \
                     are read, but no checksum verifies them"
                );
            }
        };
        write!(
            out,
            "byte {offset}: {what}; bytes {offset} to {end} are skipped"
        )
    }
}
