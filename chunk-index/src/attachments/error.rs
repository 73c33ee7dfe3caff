//! Why the bytes of an attachment are not used.

/// Why the bytes of an attachment are not used. It is derived: index the file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// Another version of the program wrote it.
    #[error("attachment {name} has version {found}, this program reads {expected}")]
    Version {
        /// Name of the attachment.
        name: &'static str,
        /// The version it has.
        found: u8,
        /// The version that is read.
        expected: u8,
    },
    /// It is damaged.
    #[error("attachment {name} is damaged: {reason}")]
    Damaged {
        /// Name of the attachment.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}
