//! Text tables for a terminal.

/// Rows of cells under a heading. Columns of numbers lean right.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(heading: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![heading.map(str::to_owned)],
        }
    }

    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }

    pub(crate) fn to_text(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        let right_aligned: [bool; COLUMNS] = std::array::from_fn(|column| {
            let mut cells = self.rows.iter().skip(1).map(|row| row[column].as_str());
            cells.all(|cell| {
                cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            })
        });
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for column in 0..COLUMNS {
                let (cell, width) = (&row[column], widths[column]);
                let cell = if right_aligned[column] {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
                line.push_str(if column == 0 { "" } else { "  " });
                line.push_str(&cell);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number of bytes with a unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
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
