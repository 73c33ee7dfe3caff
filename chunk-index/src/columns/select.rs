//! Which events of a chunk match a filter, according to its columns.

use query_language::{
    CompareOp, Condition, FieldPath, Filter, Matcher, Number, Predicate, Scalar, Value,
};

use super::bits::Bits;
use super::file::{ColumnBlock, Columns};
use super::integers::{self, Integers};
use super::values::{self, Values};
use crate::filter_tree::FilterTree;
use crate::sidecar::SidecarError;

/// A filter prepared for columns.
#[derive(Debug)]
pub struct ColumnFilter {
    root: FilterTree,
    leaves: Vec<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    field: FieldPath,
    matcher: Matcher,
    /// The integers that match, if the condition is a comparison with an integer.
    range: Option<(i64, i64)>,
}

/// How many events of a chunk match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matches {
    /// Exactly this many.
    Exactly(u64),
    /// At most this many; the columns do not contain all fields of the filter.
    AtMost(u64),
}

/// Rows that may match, and rows that certainly do.
struct Rows {
    may: Bits,
    /// `None` if they are the same.
    all: Option<Bits>,
}

/// A column in memory.
enum Column {
    Times(Integers),
    Values(Values),
}

impl ColumnFilter {
    /// Prepares `filter`.
    pub fn new(filter: &Filter) -> ColumnFilter {
        let mut leaves = Vec::new();
        let root = FilterTree::new(filter, Leaf::new, &mut leaves);
        ColumnFilter { root, leaves }
    }

    /// The columns of a chunk that the filter needs, in the order of the file; none if they would
    /// decide nothing.
    pub fn wanted(&self, columns: &Columns, chunk: usize) -> Vec<ColumnBlock> {
        let fields = self.leaves.iter().map(|leaf| leaf.field.as_str());
        let blocks = fields.filter_map(|field| columns.block(chunk, field));
        let mut blocks: Vec<ColumnBlock> = blocks.map(|(_, block)| block).collect();
        blocks.sort_by_key(|block| block.range().start);
        blocks.dedup();
        blocks
    }

    /// How many events of a chunk match, from the bytes of the columns of [`ColumnFilter::wanted`].
    ///
    /// # Errors
    /// When the bytes are not those of the columns.
    pub fn matches(
        &self,
        columns: &Columns,
        chunk: usize,
        loaded: &[(ColumnBlock, Vec<u8>)],
    ) -> Result<Matches, SidecarError> {
        let rows = columns.rows(chunk).unwrap_or(0);
        let mut of_leaves = Vec::with_capacity(self.leaves.len());
        let mut decoded: Vec<(ColumnBlock, Column)> = Vec::with_capacity(loaded.len());
        for leaf in &self.leaves {
            let Some((times, block)) = columns.block(chunk, leaf.field.as_str()) else {
                of_leaves.push(None);
                continue;
            };
            if !decoded.iter().any(|(known, _)| *known == block)
                && let Some((_, bytes)) = loaded.iter().find(|(known, _)| *known == block)
            {
                decoded.push((block, decode(&block, times, bytes)?));
            }
            let column = decoded.iter().find(|(known, _)| *known == block);
            of_leaves.push(column.map(|(_, column)| leaf.rows(column)));
        }
        let selected = self.root.rows(&of_leaves, rows);
        Ok(match selected.all {
            None => Matches::Exactly(selected.may.count()),
            Some(all) if all == selected.may => Matches::Exactly(all.count()),
            Some(_) => Matches::AtMost(selected.may.count()),
        })
    }
}

fn decode(block: &ColumnBlock, times: bool, bytes: &[u8]) -> Result<Column, SidecarError> {
    let (raw, rows) = block.unpack(bytes)?;
    let column = if times {
        integers::decode(&raw, rows).map(Column::Times)
    } else {
        values::decode(&raw, rows).map(Column::Values)
    };
    column.map_err(|reason| block.damaged(reason))
}

impl Leaf {
    fn new(predicate: &Predicate<Scalar>) -> Leaf {
        Leaf {
            field: predicate.field.clone(),
            matcher: Matcher::new(&predicate.condition),
            range: range_of(&predicate.condition),
        }
    }
}

/// The integers that match a comparison, as far as they are times; an empty range for none.
fn range_of(condition: &Condition<Scalar>) -> Option<(i64, i64)> {
    let Condition::Compare(op, Scalar::Number(Number::Int(literal))) = condition else {
        return None;
    };
    let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (low, high) = match op {
        CompareOp::Eq => (*literal, *literal),
        CompareOp::Lt => (min, literal.saturating_sub(1)),
        CompareOp::Le => (min, *literal),
        CompareOp::Gt => (literal.saturating_add(1), max),
        CompareOp::Ge => (*literal, max),
        CompareOp::Ne => return None,
    };
    let (low, high) = (low.max(min), high.min(max));
    match (i64::try_from(low), i64::try_from(high)) {
        (Ok(low), Ok(high)) => Some((low, high)),
        _ => Some((1, 0)),
    }
}

impl Leaf {
    /// The rows that match. Rows without the field do not.
    fn rows(&self, column: &Column) -> Bits {
        match column {
            Column::Times(times) => {
                let mut rows = match self.range {
                    Some((low, high)) => {
                        Bits::of(&times.values, |value| low <= value && value <= high)
                    }
                    None => Bits::of(&times.values, |value| {
                        self.matcher.passes(Value::Int(value))
                    }),
                };
                if let Some(present) = &times.present {
                    rows.and(present);
                }
                rows
            }
            Column::Values(column) => {
                let values = column.values.iter();
                let passes = values.map(|value| self.matcher.passes(value.as_value()));
                let passes: Vec<bool> = [false].into_iter().chain(passes).collect();
                Bits::of(&column.numbers, |number| passes[usize::from(number)])
            }
        }
    }
}

impl FilterTree {
    fn rows(&self, leaves: &[Option<Bits>], rows: usize) -> Rows {
        match self {
            FilterTree::Leaf(leaf) => match &leaves[*leaf] {
                Some(bits) => Rows {
                    may: bits.clone(),
                    all: None,
                },
                None => Rows {
                    may: Bits::all(rows, true),
                    all: Some(Bits::all(rows, false)),
                },
            },
            FilterTree::And(operands) => {
                let begin = Rows::exactly(Bits::all(rows, true));
                let operands = operands.iter().map(|operand| operand.rows(leaves, rows));
                operands.fold(begin, |sum, operand| sum.with(operand, Bits::and))
            }
            FilterTree::Or(operands) => {
                let begin = Rows::exactly(Bits::all(rows, false));
                let operands = operands.iter().map(|operand| operand.rows(leaves, rows));
                operands.fold(begin, |sum, operand| sum.with(operand, Bits::or))
            }
            FilterTree::Not(operand) => {
                let mut rows = operand.rows(leaves, rows);
                rows.may.not();
                if let Some(all) = &mut rows.all {
                    all.not();
                    std::mem::swap(&mut rows.may, all);
                }
                rows
            }
        }
    }
}

impl Rows {
    fn exactly(rows: Bits) -> Rows {
        Rows {
            may: rows,
            all: None,
        }
    }

    fn with(mut self, other: Rows, combine: impl Fn(&mut Bits, &Bits)) -> Rows {
        if self.all.is_some() || other.all.is_some() {
            let mut all = self.all.take().unwrap_or_else(|| self.may.clone());
            combine(&mut all, other.all.as_ref().unwrap_or(&other.may));
            self.all = Some(all);
        }
        combine(&mut self.may, &other.may);
        self
    }
}
