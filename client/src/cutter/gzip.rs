use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::lines::{LINE_BYTES_MAX, line_end, too_long};
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

const READ_BYTES: usize = 256 << 10;
/// A member with more text than this many target sizes is cut as text.
const MEMBER_TARGETS_MAX: usize = 4;

/// Cuts gzipped text.
///
/// A packet is a group of unchanged members with the target size of text, if the text of the group
/// ends with a line. If members are too large for that, or end in the middle of a line, their text
/// is decompressed and cut at line ends, up to the next member that ends with a line. Every packet
/// thus consists of complete lines, as gzip (recognizable by its first two bytes) or as text.
///
/// A file that ends inside a member, because its producer was killed, is cut up to its end: a
/// last member that is passed on unchanged remains torn; text ends where decompression ended.
#[derive(Debug)]
pub struct GzipCutter {
    path: PathBuf,
    input: BufReader<File>,
    inflate: Decompress,
    /// Bytes of the file consumed so far.
    position: u64,
    /// Offset of the current member.
    member: u64,
    gathered: Gathered,
    /// Text of the gathered members, or text that is not cut yet.
    text: Vec<u8>,
    target: usize,
    ready: VecDeque<Cut>,
    stage: Stage,
    /// Checksum and length of the current member's text.
    sum: Crc,
    torn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Between,
    Inside,
    Done,
}

/// What is gathered for the next packet.
#[derive(Debug)]
enum Gathered {
    /// Complete members, and the beginning of one.
    Members {
        bytes: Vec<u8>,
        /// Lengths of `bytes` and of the text, and position in the file, at the last member that
        /// ends with a line.
        good: (usize, usize, u64),
    },
    Text,
}

impl Gathered {
    fn members() -> Self {
        Self::Members {
            bytes: Vec::new(),
            good: (0, 0, 0),
        }
    }
}

impl GzipCutter {
    /// Opens a gzip file, to cut it from its beginning.
    pub fn open(path: &Path, target: usize) -> Result<Self, ClientError> {
        let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(READ_BYTES, file),
            inflate: Decompress::new(false),
            position: 0,
            member: 0,
            gathered: Gathered::members(),
            text: Vec::new(),
            target,
            ready: VecDeque::new(),
            stage: Stage::Between,
            sum: Crc::new(),
            torn: false,
        })
    }

    /// Processes a header, some text, or the end of the file.
    fn step(&mut self) -> Result<(), ClientError> {
        let (next, whole) = match self.stage {
            Stage::Between => {
                self.member = self.position;
                if self.peek()?.is_empty() {
                    (Stage::Done, true)
                } else {
                    (Stage::Inside, self.read_header()?)
                }
            }
            Stage::Inside => self.inflate_some()?,
            Stage::Done => return Ok(()),
        };
        self.torn = !whole;
        self.stage = if whole { next } else { Stage::Done };
        if self.stage == Stage::Done {
            self.cut_rest();
        }
        Ok(())
    }

    /// Skips the header (RFC 1952, section 2.3). Returns false if the file ends inside it.
    fn read_header(&mut self) -> Result<bool, ClientError> {
        const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
        const EXTRA: u8 = 4;
        const ZERO_ENDED: [u8; 2] = [8, 16];
        const CHECKSUM: u8 = 2;
        let mut fixed = [0; 10];
        let is_complete = self.read_exact(&mut fixed)?;
        let known = usize::try_from(self.position - self.member).unwrap_or(fixed.len());
        if !MAGIC.starts_with(&fixed[..known.min(MAGIC.len())]) {
            return Err(self.damaged("not the beginning of a gzip member"));
        }
        if !is_complete {
            return Ok(false);
        }
        let flags = fixed[3];
        let mut two = [0; 2];
        if flags & EXTRA != 0 {
            let mut left = if self.read_exact(&mut two)? {
                u16::from_le_bytes(two)
            } else {
                return Ok(false);
            };
            while left > 0 {
                if !self.read_exact(&mut [0])? {
                    return Ok(false);
                }
                left -= 1;
            }
        }
        for flag in ZERO_ENDED {
            let mut byte = [u8::from(flags & flag != 0)];
            while byte != [0] {
                if !self.read_exact(&mut byte)? {
                    return Ok(false);
                }
            }
        }
        Ok(flags & CHECKSUM == 0 || self.read_exact(&mut two)?)
    }

    /// Decompresses one buffer of input. The flag is false if the file ends inside the member.
    fn inflate_some(&mut self) -> Result<(Stage, bool), ClientError> {
        let input = self.input.fill_buf();
        let input = input.map_err(|error| ClientError::file(&self.path, error))?;
        if input.is_empty() {
            return Ok((Stage::Done, false));
        }
        let (before, inflated) = (self.inflate.total_in(), self.text.len());
        self.text.reserve(READ_BYTES);
        let inflate = &mut self.inflate;
        let status = inflate.decompress_vec(input, &mut self.text, FlushDecompress::None);
        let used = usize::try_from(inflate.total_in() - before).unwrap_or(usize::MAX);
        if let Gathered::Members { bytes, .. } = &mut self.gathered {
            bytes.extend_from_slice(&input[..used]);
        }
        self.input.consume(used);
        self.position += used as u64;
        self.sum.update(&self.text[inflated..]);
        match status {
            Ok(Status::StreamEnd) => {}
            Ok(_) => {
                self.cut_long()?;
                return Ok((Stage::Inside, true));
            }
            Err(error) => return Err(self.damaged(&error.to_string())),
        }
        let mut trailer = [0; 8];
        if !self.read_exact(&mut trailer)? {
            return Ok((Stage::Done, false));
        }
        let sum = [
            self.sum.sum().to_le_bytes(),
            self.sum.amount().to_le_bytes(),
        ]
        .concat();
        if trailer[..] != sum {
            return Err(self.damaged("the checksum of the gzip member does not match its text"));
        }
        self.sum.reset();
        self.inflate.reset(false);
        self.close_member()?;
        Ok((Stage::Between, true))
    }

    /// Cuts text that is too long. The result does not depend on how much is decompressed at a
    /// time.
    fn cut_long(&mut self) -> Result<(), ClientError> {
        if self.text.len() > self.target * MEMBER_TARGETS_MAX {
            self.cut_group();
            if self.text.len() > self.target * MEMBER_TARGETS_MAX {
                self.gathered = Gathered::Text;
            }
        }
        self.cut_text()
    }

    /// Cuts after a complete member.
    fn close_member(&mut self) -> Result<(), ClientError> {
        self.cut_long()?;
        let ends_line = self.text.last().is_none_or(|&byte| byte == b'\n');
        match &mut self.gathered {
            Gathered::Members { bytes, good } => {
                if ends_line {
                    *good = (bytes.len(), self.text.len(), self.position);
                }
                // Bounds the size of many members without text.
                if good.1 >= self.target || good.0 >= self.target * MEMBER_TARGETS_MAX {
                    self.cut_group();
                }
            }
            Gathered::Text => {
                if ends_line {
                    self.cut_rest();
                    self.gathered = Gathered::members();
                }
            }
        }
        Ok(())
    }

    /// Cuts the members up to the last one that ends with a line.
    fn cut_group(&mut self) {
        let Gathered::Members { bytes, good } = &mut self.gathered else {
            return;
        };
        let (length, text, position) = std::mem::take(good);
        if length > 0 {
            let rest = bytes.split_off(length);
            let packet = std::mem::replace(bytes, rest);
            self.ready.push_back(Cut {
                bytes: Bytes::from(packet),
                position,
                text: Some(TextLength::of(&self.text[..text])),
            });
            self.text.drain(..text);
        }
    }

    /// Cuts text into packets of the target size.
    fn cut_text(&mut self) -> Result<(), ClientError> {
        if !matches!(self.gathered, Gathered::Text) {
            return Ok(());
        }
        let mut start = 0;
        while self.text.len() - start >= self.target {
            let Some(length) = line_end(&self.text[start..], self.target) else {
                if self.text.len() - start > LINE_BYTES_MAX {
                    return Err(too_long(&self.path, self.member));
                }
                break;
            };
            let packet = Bytes::copy_from_slice(&self.text[start..start + length]);
            start += length;
            self.ready.push_back(Cut {
                text: Some(TextLength::of(&packet)),
                bytes: packet,
                position: self.position,
            });
        }
        self.text.drain(..start);
        Ok(())
    }

    /// Cuts the rest, at the end of the text or of the file.
    fn cut_rest(&mut self) {
        let text = std::mem::take(&mut self.text);
        let length = TextLength::of(&text);
        let packet = match &mut self.gathered {
            Gathered::Members { bytes, .. } => std::mem::take(bytes),
            Gathered::Text => text,
        };
        if !packet.is_empty() {
            self.ready.push_back(Cut {
                bytes: Bytes::from(packet),
                position: self.position,
                text: Some(length),
            });
        }
    }

    fn peek(&mut self) -> Result<&[u8], ClientError> {
        let bytes = self.input.fill_buf();
        bytes.map_err(|error| ClientError::file(&self.path, error))
    }

    /// Reads bytes that are not part of the text. Returns false if the file ends before `target` is
    /// full.
    fn read_exact(&mut self, target: &mut [u8]) -> Result<bool, ClientError> {
        let mut filled = 0;
        while filled < target.len() {
            let bytes = self.peek()?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let length = bytes.len().min(target.len() - filled);
            target[filled..filled + length].copy_from_slice(&bytes[..length]);
            if let Gathered::Members { bytes, .. } = &mut self.gathered {
                bytes.extend_from_slice(&target[filled..filled + length]);
            }
            self.input.consume(length);
            self.position += length as u64;
            filled += length;
        }
        Ok(true)
    }

    fn damaged(&self, what: &str) -> ClientError {
        let (path, member, position) = (self.path.display(), self.member, self.position);
        ClientError::damaged(
            format!("{path} at offset {position}, in the gzip member at offset {member}"),
            format!("{what}; use --kind raw to push the bytes unchanged"),
        )
    }
}

impl Cutter for GzipCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        while self.ready.is_empty() && self.stage != Stage::Done {
            self.step()?;
        }
        Ok(self.ready.pop_front())
    }

    fn remark(&self) -> Option<String> {
        let (path, member) = (self.path.display(), self.member);
        self.torn
            .then(|| format!("{path}: the file ends inside the gzip member at offset {member}"))
    }
}
