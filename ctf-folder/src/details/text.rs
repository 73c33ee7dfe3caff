//! Lines with indentation.

/// Spaces of a level.
const LEVEL: usize = 2;

/// The text of one message, or of a block of messages.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) out: Vec<u8>,
    indent: usize,
}

impl Lines {
    pub(super) fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn deeper(&mut self) {
        self.indent += LEVEL;
    }

    pub(super) fn back(&mut self) {
        self.indent = self.indent.saturating_sub(LEVEL);
    }

    pub(super) fn indent(&mut self) {
        let length = self.out.len() + self.indent;
        self.out.resize(length, b' ');
    }

    /// `NAME:`, indented.
    pub(super) fn name(&mut self, name: &str) {
        self.indent();
        self.push(name);
        self.out.push(b':');
    }

    /// `NAME: VALUE`, a line.
    pub(super) fn line(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.push(b' ');
        self.push(value);
        self.out.push(b'\n');
    }

    /// `NAME: Yes`, or `No`.
    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.line(name, if value { "Yes" } else { "No" });
    }
}

/// `s` unless there is one.
pub(super) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
