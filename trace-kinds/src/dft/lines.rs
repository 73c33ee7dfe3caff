//! Complete lines from text that arrives in slices.

use std::ops::ControlFlow;

/// A longer line is not a record; it is skipped without being stored.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'t> {
    /// Complete lines, each with its line end except the last one of the text.
    Lines(&'t [u8]),
    /// Bytes of a line that is too long, and whether its end is among them.
    Skipped(u64, bool),
}

/// Divides slices of text into complete lines; copies only lines that span slices.
#[derive(Debug, Default)]
pub struct Lines {
    carry: Vec<u8>,
    skipping: bool,
    /// Text is missing before the next slice.
    after_gap: bool,
}

impl Lines {
    /// Reads the next slice.
    pub fn feed(
        &mut self,
        text: &[u8],
        mut each: impl FnMut(Part<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.after_gap && !text.is_empty() {
            self.after_gap = false;
            self.skipping = !matches!(text[0], b'{' | b'[' | b'\n');
        }
        let mut rest = text;
        if self.skipping || !self.carry.is_empty() {
            let Some(newline) = memchr::memchr(b'\n', rest) else {
                return self.carry_over(rest, each);
            };
            let (end, next) = rest.split_at(newline + 1);
            rest = next;
            if std::mem::take(&mut self.skipping) {
                each(Part::Skipped(end.len() as u64, true))?;
            } else {
                self.carry.extend_from_slice(end);
                let flow = each(Part::Lines(&self.carry));
                self.carry.clear();
                flow?;
            }
        }
        let whole = memchr::memrchr(b'\n', rest).map_or(0, |newline| newline + 1);
        let (lines, tail) = rest.split_at(whole);
        if !lines.is_empty() {
            each(Part::Lines(lines))?;
        }
        self.carry_over(tail, each)
    }

    /// Text is missing here: ends the current line. The next text begins in the middle of a line,
    /// which is skipped, unless it begins like a record.
    pub fn gap(&mut self, each: impl FnMut(Part<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let flow = self.finish(each);
        self.after_gap = true;
        flow
    }

    /// Whether the text so far ends inside a line.
    pub fn inside_line(&self) -> bool {
        self.skipping || !self.carry.is_empty()
    }

    fn carry_over(
        &mut self,
        tail: &[u8],
        mut each: impl FnMut(Part<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.skipping {
            return if tail.is_empty() {
                ControlFlow::Continue(())
            } else {
                each(Part::Skipped(tail.len() as u64, false))
            };
        }
        self.carry.extend_from_slice(tail);
        if self.carry.len() > LINE_BYTES_MAX {
            self.skipping = true;
            let len = self.carry.len() as u64;
            self.carry = Vec::new();
            return each(Part::Skipped(len, false));
        }
        ControlFlow::Continue(())
    }

    /// Ends the text: passes on the last line, which has no line end.
    pub fn finish(&mut self, mut each: impl FnMut(Part<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        if std::mem::take(&mut self.skipping) {
            return each(Part::Skipped(0, true));
        }
        let carry = std::mem::take(&mut self.carry);
        if carry.is_empty() {
            ControlFlow::Continue(())
        } else {
            each(Part::Lines(&carry))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_wherever_the_text_is_cut() {
        let text = b"one\n\ntwo and a half\nthree\nno end";
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut lines = Lines::default();
                let mut parts = Vec::new();
                let mut each = |part: Part<'_>| {
                    if let Part::Lines(lines) = part {
                        parts.push(lines.to_vec());
                    }
                    ControlFlow::Continue(())
                };
                for slice in [&text[..first], &text[first..second], &text[second..]] {
                    assert!(lines.feed(slice, &mut each).is_continue());
                }
                assert!(lines.finish(&mut each).is_continue());
                assert_eq!(parts.concat(), text);
                for part in &parts[..parts.len() - 1] {
                    assert!(part.ends_with(b"\n"), "{parts:?}");
                }
            }
        }
    }

    #[test]
    fn lines_on_both_sides_of_a_gap_are_not_joined() {
        for (after, skipped) in [(&b"tail of a line\n{2}\n"[..], 15), (b"{2}\n", 0)] {
            let mut lines = Lines::default();
            let (mut parts, mut skipped_bytes) = (Vec::new(), 0);
            let mut each = |part: Part<'_>| {
                match part {
                    Part::Lines(lines) => parts.push(lines.to_vec()),
                    Part::Skipped(len, ends) => skipped_bytes += len * u64::from(ends),
                }
                ControlFlow::Continue(())
            };
            assert!(lines.feed(b"{1}\n{half", &mut each).is_continue());
            assert!(lines.gap(&mut each).is_continue());
            assert!(lines.feed(b"", &mut each).is_continue());
            assert!(lines.feed(after, &mut each).is_continue());
            assert_eq!(parts, [&b"{1}\n"[..], b"{half", b"{2}\n"]);
            assert_eq!(skipped_bytes, skipped);
        }
    }

    #[test]
    fn an_endless_line_is_counted_where_the_text_ends() {
        let mut lines = Lines::default();
        let mut ended = 0;
        let mut each = |part: Part<'_>| {
            ended += u64::from(matches!(part, Part::Skipped(_, true)));
            ControlFlow::Continue(())
        };
        assert!(
            lines
                .feed(&vec![b'x'; LINE_BYTES_MAX + 1], &mut each)
                .is_continue()
        );
        assert!(lines.finish(&mut each).is_continue());
        assert!(lines.finish(&mut each).is_continue());
        assert_eq!(ended, 1);
    }

    #[test]
    fn the_memory_of_an_endless_line_is_bounded() {
        let mut lines = Lines::default();
        let mut got = (0, Vec::new());
        let slice = vec![b'x'; 1 << 20];
        let mut each = |part: Part<'_>| {
            match part {
                Part::Lines(lines) => got.1.extend_from_slice(lines),
                Part::Skipped(len, _) => got.0 += len,
            }
            ControlFlow::Continue(())
        };
        for _ in 0..40 {
            assert!(lines.feed(&slice, &mut each).is_continue());
        }
        assert!(lines.feed(b"y\nnext\n", &mut each).is_continue());
        assert!(lines.carry.capacity() <= 2 * LINE_BYTES_MAX);
        assert_eq!(got, ((40 << 20) + 2, b"next\n".to_vec()));
    }
}
