//! Names that people read in lists, logs and terminals.

/// Whether a text is shown as what it is: without control characters, and without those that end a
/// line or change the direction of what follows.
pub(crate) fn is_plain(text: &str) -> bool {
    let changes_line = |c| {
        matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !text
        .chars()
        .any(|c: char| c.is_control() || changes_line(c))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn texts_that_forge_lines_are_not_plain() {
        for plain in ["", "web-1", "Käse 網", "a b", "(x)"] {
            assert!(is_plain(plain), "{plain}");
        }
        for forged in [
            "a\nb",
            "a\r",
            "\u{1b}[31m",
            "\u{7}",
            "a\u{202e}b",
            "a\u{2028}b",
            "\u{2066}",
        ] {
            assert!(!is_plain(forged), "{forged:?}");
        }
    }
}
