//! Errors of building a trace class.

/// The subject of a [`BuildFrame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The trace class as a whole.
    Whole,
    /// The item at this offset of the metadata text.
    Origin(u32),
}

/// One line of the explanation of a [`BuildError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFrame {
    /// The subject of the message.
    pub subject: Subject,
    /// The message.
    pub message: String,
}

/// Why a trace class cannot be built; the innermost frame is the fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .frames.first().map_or("invalid trace class", |frame| &*frame.message))]
pub struct BuildError {
    /// Innermost first; never empty. Of deeply nested classes, only the innermost ones.
    pub frames: Vec<BuildFrame>,
    /// The nesting exceeds the limit of the builder.
    pub(crate) is_too_deep: bool,
}

/// Limit of the lines of an explanation.
const FRAMES_MAX: usize = 64;

impl BuildError {
    pub(crate) fn new(subject: Subject, message: impl Into<String>) -> Self {
        Self {
            frames: vec![BuildFrame {
                subject,
                message: message.into(),
            }],
            is_too_deep: false,
        }
    }

    pub(crate) fn too_deep(origin: u32, depth_max: u32) -> Self {
        let message = format!("field classes nest deeper than {depth_max} levels");
        Self {
            is_too_deep: true,
            ..Self::new(Subject::Origin(origin), message)
        }
    }

    pub(super) fn at(origin: u32, message: impl Into<String>) -> Self {
        Self::new(Subject::Origin(origin), message)
    }

    pub(crate) fn within(mut self, subject: Subject, message: impl Into<String>) -> Self {
        if self.frames.len() < FRAMES_MAX {
            self.frames.push(BuildFrame {
                subject,
                message: message.into(),
            });
        }
        self
    }
}
