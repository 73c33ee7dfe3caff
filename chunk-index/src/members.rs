//! The values of a dimension over all chunks of a file, while it is indexed.

use query_language::Value;

use crate::intern::Interner;
use crate::lexicon::{MEMBERS_MAX, Places};

/// The values that the chunks of a file had, by number, in the order in which they came.
///
/// A chunk that has too many values for a dictionary says which of these it has, until the order
/// of the lexicon is known: see [`Members::settle`].
#[derive(Debug)]
pub struct Members {
    /// Place of the dimension among those of the configuration.
    dimension: usize,
    interner: Interner,
}

impl Members {
    pub(crate) fn new(dimension: usize) -> Members {
        Members {
            dimension,
            interner: Interner::new(),
        }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// The numbers of the values of a chunk; `None` when there is no room for all.
    pub(crate) fn number<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) -> Option<Places> {
        let numbers = values.map(|value| self.interner.count(value, MEMBERS_MAX));
        let mut numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
        numbers.sort_unstable();
        Some(Places::new(&numbers))
    }

    /// The values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.interner.values().map(|(value, _)| value)
    }
}
