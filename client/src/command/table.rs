use std::io::{self, Write};

/// A table for people: columns as wide as their widest cell, numbers to the right.
#[derive(Debug)]
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len(), "a cell for each head");
        self.rows.push(cells);
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let columns: Vec<Column> = (0..self.heads.len()).map(|at| self.column(at)).collect();
        let heads: Vec<String> = self.heads.iter().map(|head| head.to_uppercase()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let cells = row.iter().zip(&columns).map(|(cell, column)| {
                let pad = " ".repeat(column.width - cell.chars().count());
                if column.is_number {
                    format!("{pad}{cell}")
                } else {
                    format!("{cell}{pad}")
                }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn column(&self, at: usize) -> Column {
        let cells = || self.rows.iter().map(|row| row[at].as_str());
        let widths = cells()
            .chain([self.heads[at]])
            .map(|cell| cell.chars().count());
        let first_word = |cell: &str| cell.split(' ').next().map(str::parse::<f64>);
        let is_number = |cell: &str| matches!(first_word(cell), Some(Ok(_)));
        Column {
            width: widths.max().unwrap_or(0),
            is_number: !self.rows.is_empty() && cells().all(is_number),
        }
    }
}

struct Column {
    width: usize,
    is_number: bool,
}

/// Bytes for people: binary units, three digits.
pub(super) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = (bytes.ilog2() / 10).min(5);
    let value = bytes as f64 / f64::from(2u32).powi(10 * exponent as i32);
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[exponent as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "bytes"]);
        table.row(vec!["é".to_owned(), "7 B".to_owned()]);
        table.row(vec!["longer".to_owned(), "1.00 KiB".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
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
