//! The operators of a filter over numbered predicates.

use query_language::{Expr, Filter, Predicate, Scalar};

/// A filter whose predicates are prepared and stored in a separate list.
#[derive(Debug)]
pub(crate) enum FilterTree {
    And(Vec<FilterTree>),
    Or(Vec<FilterTree>),
    Not(Box<FilterTree>),
    /// The index of a predicate.
    Leaf(usize),
}

impl FilterTree {
    /// The tree of `filter`. Appends its predicates to `leaves`, prepared by `leaf`.
    pub(crate) fn new<L>(
        filter: &Filter,
        leaf: fn(&Predicate<Scalar>) -> L,
        leaves: &mut Vec<L>,
    ) -> FilterTree {
        let mut all = |operands: &[Filter]| -> Vec<FilterTree> {
            let trees = operands.iter().map(|o| FilterTree::new(o, leaf, leaves));
            trees.collect()
        };
        match filter {
            Expr::And(operands) => FilterTree::And(all(operands)),
            Expr::Or(operands) => FilterTree::Or(all(operands)),
            Expr::Not(operand) => FilterTree::Not(Box::new(FilterTree::new(operand, leaf, leaves))),
            Expr::Test(predicate) => {
                leaves.push(leaf(predicate));
                FilterTree::Leaf(leaves.len() - 1)
            }
        }
    }
}
