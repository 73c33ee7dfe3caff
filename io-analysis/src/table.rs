//! Text tables and units for terminals.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A table whose columns are as wide as their widest cell. Columns of numbers are right-aligned.
#[derive(Debug)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with one heading per column.
    pub fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            rows: vec![headings.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row. Control characters, which would move the cursor of a terminal, are escaped.
    ///
    /// # Panics
    /// If the number of cells is not the number of headings.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let mut cells = cells.into();
        assert_eq!(cells.len(), self.rows[0].len(), "one cell per heading");
        for cell in cells
            .iter_mut()
            .filter(|cell| cell.contains(char::is_control))
        {
            let chars = cell.chars();
            *cell = chars.fold(String::new(), |mut escaped, c| {
                if c.is_control() {
                    escaped.extend(c.escape_default());
                } else {
                    escaped.push(c);
                }
                escaped
            });
        }
        self.rows.push(cells);
    }

    /// The rows as lines, uncut and without colour.
    pub fn to_text(&self) -> String {
        self.fit(Layout::default())
    }

    /// The rows as lines that fit a terminal: text is cut, or, where that is not enough, every cell
    /// gets a line of its own.
    pub fn fit(&self, layout: Layout) -> String {
        let columns: Vec<Column> = (0..self.rows[0].len()).map(|at| self.column(at)).collect();
        let Some(width) = layout.width else {
            return self.lines(&columns, layout.has_colour);
        };
        match fitting(columns, width) {
            Some(columns) => self.lines(&columns, layout.has_colour),
            None if self.rows.len() > 1 => self.records(width, layout.has_colour),
            None => cut(&self.rows[0].join("  "), width) + "\n",
        }
    }

    fn lines(&self, columns: &[Column], has_colour: bool) -> String {
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (at, (cell, column)) in row.iter().zip(columns).enumerate() {
                let cell = cut(cell, column.width);
                let padding = " ".repeat(column.width.saturating_sub(cell.width()));
                let is_last = at + 1 == columns.len();
                let after = if is_last { "" } else { "  " };
                let style = self.style(number, at, has_colour);
                if column.is_number {
                    line.push_str(&format!("{padding}{style}{cell}{style:#}{after}"));
                } else {
                    let padding = if is_last { "" } else { &padding };
                    line.push_str(&format!("{style}{cell}{style:#}{padding}{after}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Rows as blocks of lines, one for each cell.
    fn records(&self, width: usize, has_colour: bool) -> String {
        let headings = self.rows[0].iter().map(|heading| heading.width());
        let widest = headings.max().unwrap_or(0);
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate().skip(1) {
            if number > 1 {
                text.push('\n');
            }
            for (at, (heading, cell)) in self.rows[0].iter().zip(row).enumerate() {
                let room = width.saturating_sub(widest + 2).max(CELL_MIN);
                let cell = if is_identifier(cell) {
                    cell.clone()
                } else {
                    cut(cell, room)
                };
                let padding = " ".repeat(widest - heading.width());
                let (bold, style) = (
                    self.style(0, at, has_colour),
                    self.style(number, at, has_colour),
                );
                let line = format!("{bold}{heading}{bold:#}{padding}  {style}{cell}{style:#}");
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text
    }

    /// The style of a cell: headings stand out, and states that need attention.
    fn style(&self, row: usize, column: usize, has_colour: bool) -> Style {
        let style = Style::new();
        if !has_colour {
            return style;
        }
        if row == 0 {
            return style.bold();
        }
        let is_state = self.rows[0][column].eq_ignore_ascii_case("state");
        match self.rows[row][column].as_str() {
            "FAILED" | "CANCELLED" | "revoked" | "expired" if is_state => {
                style.fg_color(Some(AnsiColor::Red.into()))
            }
            _ => style,
        }
    }

    fn column(&self, at: usize) -> Column {
        let cells = || self.rows.iter().map(|row| row[at].as_str());
        let is_number = cells().skip(1).all(is_number);
        Column {
            width: cells().map(UnicodeWidthStr::width).max().unwrap_or(0),
            is_number,
            is_whole: is_number || cells().skip(1).any(is_identifier),
        }
    }
}

/// How a table is laid out. By default everything is there, for files and programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: Option<usize>,
    /// Whether to use colours.
    pub has_colour: bool,
}

/// Cells of text are not cut below this width.
const CELL_MIN: usize = 12;
const GAP: usize = 2;

#[derive(Debug, Clone, Copy)]
struct Column {
    width: usize,
    is_number: bool,
    /// Whether a part of a cell would be worthless: numbers and identifiers.
    is_whole: bool,
}

/// The columns, narrow enough for a terminal; `None` if that would take too much away.
fn fitting(mut columns: Vec<Column>, width: usize) -> Option<Vec<Column>> {
    let gaps = GAP * columns.len().saturating_sub(1);
    let total = |columns: &[Column], most: usize| {
        let widths = columns.iter().map(|column| {
            if column.is_whole {
                column.width
            } else {
                column.width.min(most)
            }
        });
        widths.sum::<usize>() + gaps
    };
    let widest = columns.iter().map(|column| column.width).max()?;
    let most = (CELL_MIN..=widest.max(CELL_MIN))
        .rev()
        .find(|most| total(&columns, *most) <= width)?;
    for column in columns.iter_mut().filter(|column| !column.is_whole) {
        column.width = column.width.min(most);
    }
    Some(columns)
}

fn is_number(cell: &str) -> bool {
    let first = cell.split(' ').next().unwrap_or_default();
    matches!(cell, "" | "-") || first.parse::<f64>().is_ok()
}

/// Whether a cell is an identifier, which is useful only as a whole.
fn is_identifier(cell: &str) -> bool {
    let bytes = cell.as_bytes();
    bytes.len() == 36 && [8, 13, 18, 23].iter().all(|at| bytes[*at] == b'-')
}

/// The start of a text that is too wide, with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let start = text.chars().take_while(|c| {
        let needed = c.width().unwrap_or(0);
        let fits = needed <= room;
        room = room.saturating_sub(needed);
        fits
    });
    start.chain(['…']).collect()
}

/// A number of bytes with a binary unit and three significant digits.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number of nanoseconds with a unit.
pub(crate) fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = TextTable::new(["NAME", "BYTES"]);
        table.row(["é".to_owned(), "7 B".to_owned()]);
        table.row(["longer".to_owned(), "1.00 KiB".to_owned()]);
        assert_eq!(
            table.to_text(),
            "NAME       BYTES\né            7 B\nlonger  1.00 KiB\n"
        );
    }

    /// The table of three storages, in a terminal of this width.
    fn storages(width: usize) -> String {
        let mut table = TextTable::new(["ID", "STATE", "BYTES", "NAME"]);
        for (id, state, name) in [
            ("0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee", "OPEN", "short"),
            (
                "0199aaaa-bbbb-7ccc-8ddd-ffffffffffff",
                "FAILED",
                "a name that goes on and on and on",
            ),
            (
                "0199aaaa-bbbb-7ccc-8ddd-000000000000",
                "OPEN",
                "a\u{1b}[2Jb",
            ),
        ] {
            table.row([id, state, "1.00 KiB", name].map(str::to_owned));
        }
        table.fit(Layout {
            width: Some(width),
            has_colour: false,
        })
    }

    #[test]
    fn text_is_cut_where_a_terminal_is_narrow() {
        for width in [70, 76, 80, 100] {
            let text = storages(width);
            assert!(
                text.lines().all(|line| line.width() <= width),
                "{width}:\n{text}"
            );
            assert_eq!(text.lines().count(), 4, "{width}:\n{text}");
            assert!(
                text.contains("0199aaaa-bbbb-7ccc-8ddd-ffffffffffff"),
                "{text}"
            );
            assert!(text.contains('…') == (width < 90), "{width}:\n{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        assert!(
            storages(80).contains("  a name that goes on and…\n"),
            "{}",
            storages(80)
        );
    }

    #[test]
    fn cells_have_lines_of_their_own_where_a_table_does_not_fit() {
        let text = storages(60);
        assert!(text.lines().all(|line| line.width() <= 60), "{text}");
        let first = "ID     0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee\nSTATE  OPEN\nBYTES  1.00 KiB\n\
                     NAME   short\n\nID     ";
        assert!(text.starts_with(first), "{text}");
        assert!(storages(30).contains("NAME   a name that goes on an…\n"));
        let heads = TextTable::new(["NAME", "A VERY LONG HEADING"]);
        let width = Some(12);
        let has_colour = false;
        assert_eq!(heads.fit(Layout { width, has_colour }), "NAME  A VER…\n");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = TextTable::new(["NAME", "STATE"]);
        table.row(["表表表表表表表表表表".to_owned(), "OPEN".to_owned()]);
        table.row(["abc".to_owned(), "FAILED".to_owned()]);
        assert_eq!(
            table.to_text(),
            "NAME                  STATE\n表表表表表表表表表表  OPEN\nabc                   FAILED\n"
        );
        let layout = Layout {
            width: Some(22),
            has_colour: true,
        };
        assert_eq!(
            table.fit(layout),
            "\u{1b}[1mNAME\u{1b}[0m            \u{1b}[1mSTATE\u{1b}[0m\n表表表表表表…   OPEN\n\
             abc             \u{1b}[31mFAILED\u{1b}[0m\n"
        );
    }

    #[test]
    fn bytes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (15 << 20, "15.0 MiB"),
            (300 << 30, "300 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }
}
