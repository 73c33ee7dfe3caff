//! Labels by which accesses are grouped.

use trace_kinds::rocksdb::Caller;

use super::blocks::Blocks;
use crate::AnalysisError;

/// A set of labels, such as `cf_bt`: column family and block type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSet {
    text: String,
    /// Sorted by name, which is the order of the values in a label.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    All,
    Block,
    BlockType,
    Caller,
    Family,
    Level,
    Sst,
}

impl LabelSet {
    /// Parses one set.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::UnknownLabel`].
    pub fn parse(text: &str) -> Result<Self, AnalysisError> {
        let mut parts = text
            .split('_')
            .map(|name| match name {
                "all" => Ok(Part::All),
                "block" => Ok(Part::Block),
                "bt" => Ok(Part::BlockType),
                "caller" => Ok(Part::Caller),
                "cf" => Ok(Part::Family),
                "level" => Ok(Part::Level),
                "sst" => Ok(Part::Sst),
                _ => Err(AnalysisError::UnknownLabel {
                    given: text.to_owned(),
                }),
            })
            .collect::<Result<Vec<_>, _>>()?;
        parts.sort_unstable();
        parts.dedup();
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Parses several sets, separated by commas.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::UnknownLabel`].
    pub fn parse_list(text: &str) -> Result<Vec<Self>, AnalysisError> {
        text.split(',').map(Self::parse).collect()
    }

    /// The set as it was given. File names begin with it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn by_block(&self) -> bool {
        self.parts.contains(&Part::Block)
    }

    pub(crate) fn by_caller(&self) -> bool {
        self.parts.contains(&Part::Caller)
    }

    pub(crate) fn by_level(&self) -> bool {
        self.parts.contains(&Part::Level)
    }

    /// The label of a block, or of all blocks of a segment.
    pub(crate) fn label(
        &self,
        blocks: &Blocks,
        segment: u32,
        caller: Caller,
        block: Option<u32>,
    ) -> String {
        let segment_info = blocks.segment(segment);
        let file = blocks.file(segment_info.file);
        let mut label = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                label.push('-');
            }
            match part {
                Part::All => label.push_str("all"),
                Part::Block => {
                    label.push_str(&block.map_or(0, |block| u64::from(block) + 1).to_string());
                }
                Part::BlockType => label.push_str(segment_info.block_type.name()),
                Part::Caller => label.push_str(caller.name()),
                Part::Family => label.push_str(&blocks.family_name(segment_info.family)),
                Part::Level => label.push_str(&file.level.to_string()),
                Part::Sst => label.push_str(&file.number.to_string()),
            }
        }
        label
    }
}
