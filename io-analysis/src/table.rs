//! Text tables and units for terminals.

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

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of cells is not the number of headings.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.rows[0].len(), "one cell per heading");
        self.rows.push(cells);
    }

    /// The rows as lines.
    pub fn to_text(&self) -> String {
        let columns = 0..self.rows[0].len();
        let columns: Vec<(usize, bool)> = columns
            .map(|column| (self.width(column), self.is_number(column)))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &(width, is_number)) in row.iter().zip(&columns) {
                if is_number {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    }

    fn is_number(&self, column: usize) -> bool {
        let is_number = |cell: &str| {
            let first = cell.split(' ').next().unwrap_or_default();
            matches!(cell, "" | "-") || first.parse::<f64>().is_ok()
        };
        let mut cells = self.rows.iter().skip(1).map(|row| row[column].as_str());
        cells.all(is_number)
    }
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
