//! Where a JSON document ends, without parsing it.

/// The key that a request begins with.
const FIRST_KEY: &[u8] = b"\"resourceSpans\"";

/// White space after the brace of a request. With more it is none, so that little is looked at
/// again when more text arrives.
const BLANK_BYTES_MAX: usize = 64;

/// Whether `text` begins with a request; `None` if it is too short to tell.
pub(super) fn begins_request(text: &[u8]) -> Option<bool> {
    let Some(rest) = text.strip_prefix(b"{") else {
        return if text.is_empty() { None } else { Some(false) };
    };
    let blank = rest.iter().take(BLANK_BYTES_MAX + 1);
    let blank = blank.take_while(|byte| byte.is_ascii_whitespace()).count();
    if blank > BLANK_BYTES_MAX {
        return Some(false);
    }
    let rest = rest.get(blank..).unwrap_or_default();
    if rest.len() < FIRST_KEY.len() {
        return if FIRST_KEY.starts_with(rest) {
            None
        } else {
            Some(false)
        };
    }
    Some(rest.starts_with(FIRST_KEY))
}

/// The state of a scan through one document.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    /// Bytes that were scanned.
    pub(super) scanned: usize,
    depth: u64,
    is_in_text: bool,
    is_escaped: bool,
}

/// What a scan found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    /// The document has this many bytes.
    Document(usize),
    /// It is not closed, and the next one begins here, on a line of its own.
    Cut(usize),
    /// It is not closed yet.
    More,
}

impl Scan {
    /// Continues through `text`, which begins with a brace; `is_end` says that no more follows.
    pub(super) fn go_on(&mut self, text: &[u8], is_end: bool) -> Scanned {
        while let Some(byte) = text.get(self.scanned) {
            match byte {
                b'\n' => {
                    let next = text.get(self.scanned + 1..).unwrap_or_default();
                    match begins_request(next) {
                        Some(true) => return Scanned::Cut(self.scanned + 1),
                        None if !is_end => return Scanned::More,
                        _ => {}
                    }
                }
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_in_text => self.is_escaped = true,
                b'"' => self.is_in_text = !self.is_in_text,
                b'{' | b'[' if !self.is_in_text => self.depth += 1,
                b'}' | b']' if !self.is_in_text => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.scanned += 1;
                        return Scanned::Document(self.scanned);
                    }
                }
                _ => {}
            }
            self.scanned += 1;
        }
        Scanned::More
    }
}
