//! The share of the blocks accessed in a time window that are accessed in later windows.

use trace_kinds::rocksdb::BlockType;

use super::blocks::{Access, Blocks};
use crate::AnalysisError;
use crate::numbers::to_usize;
use crate::result_file::{ResultFile, percent};

/// Maximum number of windows.
const WINDOWS_MAX: u64 = 4096;

/// One bit per block and window.
#[derive(Debug, Default)]
struct Windows {
    /// Words per block.
    stride: usize,
    words: Vec<u64>,
}

impl Windows {
    fn set(&mut self, block: u32, window: usize) {
        let word = window / 64;
        if word >= self.stride {
            self.widen((word + 1).next_power_of_two());
        }
        let at = block as usize * self.stride + word;
        if at >= self.words.len() {
            self.words.resize((block as usize + 1) * self.stride, 0);
        }
        self.words[at] |= 1 << (window % 64);
    }

    #[cold]
    fn widen(&mut self, stride: usize) {
        // The stride is 0 before the first bit is set.
        let old = self.stride.max(1);
        let mut words = vec![0; self.words.len() / old * stride];
        for (row, wide) in self
            .words
            .chunks_exact(old)
            .zip(words.chunks_exact_mut(stride))
        {
            wide[..old].copy_from_slice(row);
        }
        self.words = words;
        self.stride = stride;
    }

    /// The windows of `block` in ascending order. Windows past `count` are merged into the last.
    fn of(&self, block: usize, count: usize) -> Vec<usize> {
        let start = block * self.stride;
        let row = self
            .words
            .get(start..start + self.stride)
            .unwrap_or_default();
        let mut windows: Vec<usize> = row
            .iter()
            .enumerate()
            .flat_map(|(index, &word)| {
                (0..64)
                    .filter(move |bit| word >> bit & 1 == 1)
                    .map(move |bit| index * 64 + bit)
            })
            .map(|window| window.min(count - 1))
            .collect();
        windows.dedup();
        windows
    }
}

/// The windows in which each block was accessed.
#[derive(Debug)]
pub(crate) struct ReuseWindow {
    window: u64,
    start: Option<u64>,
    end: u64,
    all: Windows,
    user: Windows,
    too_many: bool,
}

impl ReuseWindow {
    pub(crate) fn new(window: u64) -> Self {
        let (all, user) = (Windows::default(), Windows::default());
        Self {
            window: window.max(1),
            start: None,
            end: 0,
            all,
            user,
            too_many: false,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let start = *self.start.get_or_insert(access.second);
        self.end = access.second;
        let window = access.second.saturating_sub(start) / self.window;
        if window >= WINDOWS_MAX {
            self.too_many = true;
            return;
        }
        let window = to_usize(window);
        self.all.set(access.block, window);
        if access.record.caller.is_user() {
            self.user.set(access.block, window);
        }
    }

    /// Two files each for index, data and filter blocks, and for all blocks together.
    ///
    /// RocksDB writes the values of all blocks into the files of all three types.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::TooManyWindows`].
    pub(crate) fn files(&self, blocks: &Blocks) -> Result<Vec<ResultFile>, AnalysisError> {
        if self.too_many {
            let (window, limit) = (self.window, WINDOWS_MAX);
            return Err(AnalysisError::TooManyWindows { window, limit });
        }
        let duration = self.end.saturating_sub(self.start.unwrap_or(self.end));
        let count = to_usize(duration / self.window);
        if count < 2 {
            return Ok(Vec::new());
        }
        let types = [
            Some(BlockType::INDEX),
            Some(BlockType::DATA),
            Some(BlockType::FILTER),
            None,
        ];
        let mut files = Vec::new();
        for only in types {
            for (windows, access) in [(&self.user, "user_access_only"), (&self.all, "all_access")] {
                let name = only.map_or("all", BlockType::name);
                files.push(ResultFile {
                    name: format!("{name}_{access}_{}_reuse_blocks_timeline", self.window),
                    text: self.table(blocks, windows, count, only),
                });
            }
        }
        Ok(files)
    }

    fn table(
        &self,
        blocks: &Blocks,
        windows: &Windows,
        count: usize,
        only: Option<BlockType>,
    ) -> String {
        let mut shared = vec![0u64; count * count];
        for (block, state) in blocks.states().iter().enumerate() {
            let block_type = blocks.segment(state.segment).block_type;
            if only.is_none_or(|only| only == block_type) {
                let accessed = windows.of(block, count);
                for (index, &from) in accessed.iter().enumerate() {
                    for &to in &accessed[index..] {
                        shared[from * count + to] += 1;
                    }
                }
            }
        }
        let mut text = String::from("start_time");
        text.extend((0..count).map(|window| format!(",{window}")));
        text.push('\n');
        for from in 0..count {
            text.push_str(&(from as u64 * self.window).to_string());
            for to in 0..count {
                if to < from {
                    text.push_str(",100.0");
                } else {
                    let all = shared[from * count + from];
                    text.push_str(&format!(",{:.6}", percent(shared[from * count + to], all)));
                }
            }
            text.push('\n');
        }
        text
    }
}
