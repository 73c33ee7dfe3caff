//! Tables of figures on a terminal.

use std::fmt;

use super::paired::Figures;

/// Rows of cells; the first column is left-aligned, the others are right-aligned.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with these column headings.
    pub(crate) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self(vec![heads.map(str::to_owned).to_vec()])
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    /// Sides of a comparison with median, spread, and ratio to the last of them.
    pub(crate) fn of_figures(unit: &str, figures: &[Figures]) -> Self {
        let mut table = Self::new(["", unit, "smallest", "largest", "ratio"]);
        let Some(base) = figures.last() else {
            return table;
        };
        for side in figures {
            let (low, high) = side.spread();
            let numbers = [side.median(), low, high].map(number);
            let ratio = format!("{:.3}", side.ratio(base));
            table.row(
                [side.name.clone()]
                    .into_iter()
                    .chain(numbers)
                    .chain([ratio]),
            );
        }
        table
    }
}

/// A figure with its significant digits.
pub(crate) fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1000.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let side = |name: &str, runs: &[f64]| Figures {
            name: name.into(),
            runs: runs.to_vec(),
        };
        let figures = [side("ours", &[2000.0]), side("theirs", &[1000.0])];
        let expected = "        MB/s  smallest  largest  ratio\n\
                        ours    2000      2000     2000  2.000\n\
                        theirs  1000      1000     1000  1.000\n";
        assert_eq!(Table::of_figures("MB/s", &figures).to_string(), expected);
    }
}
