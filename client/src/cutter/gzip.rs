use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::damage::{DamageFound, Damaged, Stretches, end_of_damage};
use super::pieces::{Boundaries, PieceCutter, damaged_member};
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

const READ_BYTES: usize = 256 << 10;
/// A member with more text than this many target sizes is cut into pieces.
const MEMBER_TARGETS_MAX: usize = 4;

/// Zero bytes after a member that are taken for padding.
pub(super) const PADDING_BYTES_MAX: u64 = 1 << 20;

/// Cuts gzipped text.
///
/// A packet is a group of unchanged members with the target size of text, if the text of the group
/// ends with a line. If members are too large for that, they and the rest of the file are cut into
/// [pieces](PieceCutter) at line ends. Every packet thus consists of complete lines, as gzip or as
/// a piece of it, which their first bytes tell apart.
///
/// A damaged member, or bytes that are none, are packets of their own, which cannot be decoded.
///
/// A file that ends inside a member, because its producer was killed, is cut up to its end: the
/// last packet remains torn.
#[derive(Debug)]
pub struct GzipCutter {
    path: PathBuf,
    input: BufReader<File>,
    inflate: Decompress,
    /// Bytes of the file consumed so far.
    position: u64,
    /// Offset of the current member.
    member: u64,
    /// Complete members, and the beginning of one.
    gathered: Vec<u8>,
    good: Good,
    /// Text of the gathered members.
    text: Vec<u8>,
    target: usize,
    /// Bytes of the file that were cut.
    cut: u64,
    ready: VecDeque<Cut>,
    stage: Stage,
    /// Checksum and length of the current member's text.
    sum: Crc,
    torn: bool,
    /// Cuts the file from its first long member on.
    pieces: Option<PieceCutter>,
    /// Text before the current member.
    member_text: usize,
    /// A damaged stretch, which is cut next.
    damaged: Option<Damaged>,
    /// What was damaged.
    damage: DamageFound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Between,
    Inside,
    Done,
}

/// Gathered members up to the last one that ends with a line.
#[derive(Debug, Clone, Copy, Default)]
struct Good {
    /// Their bytes.
    bytes: usize,
    /// Bytes of their text.
    text: usize,
    /// Where the last one ends in the file.
    position: u64,
}

/// Lines, of which each may end a packet.
#[derive(Debug, Default)]
struct Lines {
    fed: u64,
    last: u64,
}

impl Boundaries for Lines {
    fn feed(&mut self, text: &[u8]) -> Result<(), String> {
        if let Some(end) = memchr::memrchr(b'\n', text) {
            self.last = self.fed + end as u64 + 1;
        }
        self.fed += text.len() as u64;
        Ok(())
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn length(&mut self, text: &[u8]) -> TextLength {
        TextLength::of(text)
    }

    fn finish(&mut self) -> Option<String> {
        None
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
            gathered: Vec::new(),
            good: Good::default(),
            text: Vec::new(),
            target,
            cut: 0,
            ready: VecDeque::new(),
            stage: Stage::Between,
            sum: Crc::new(),
            torn: false,
            pieces: None,
            member_text: 0,
            damaged: None,
            damage: DamageFound::default(),
        })
    }

    /// Processes a header, some text, or the end of the file.
    fn step(&mut self) -> Result<(), ClientError> {
        let (next, whole) = match self.stage {
            Stage::Between => {
                self.member = self.position;
                self.member_text = self.text.len();
                if self.peek()?.is_empty() {
                    (Stage::Done, true)
                } else {
                    (Stage::Inside, self.read_header()?)
                }
            }
            Stage::Inside => self.inflate_some()?,
            Stage::Done => return Ok(()),
        };
        // Damage may also hide where a member ends.
        if !whole && end_of_damage(&self.path, self.member)? < self.position {
            return Err(self.damaged("its data do not end where the next member begins"));
        }
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
        self.gathered.extend_from_slice(&input[..used]);
        self.input.consume(used);
        self.position += used as u64;
        self.sum.update(&self.text[inflated..]);
        match status {
            Ok(Status::StreamEnd) => {}
            Ok(_) => {
                let is_long = self.cut_long()?;
                let next = if is_long { Stage::Done } else { Stage::Inside };
                return Ok((next, true));
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
        self.read_padding()?;
        let is_long = self.close_member()?;
        let next = if is_long { Stage::Done } else { Stage::Between };
        Ok((next, true))
    }

    /// Adds zero bytes that follow a member to it: they are padding, as `gzip` reads them.
    fn read_padding(&mut self) -> Result<(), ClientError> {
        let begin = self.position;
        while self.peek()?.first() == Some(&0) {
            if self.position - begin >= PADDING_BYTES_MAX {
                return Ok(());
            }
            self.read_exact(&mut [0])?;
        }
        Ok(())
    }

    /// Cuts what precedes text that is too long, and hands the rest of the file over. The result
    /// does not depend on how much is decompressed at a time.
    fn cut_long(&mut self) -> Result<bool, ClientError> {
        let text_max = self.target * MEMBER_TARGETS_MAX;
        if self.text.len() > text_max {
            self.cut_group();
        }
        let is_long = self.text.len() > text_max;
        if is_long {
            let boundaries = (Lines::default(), true);
            let pieces = PieceCutter::open(&self.path, self.cut, self.target, boundaries)?;
            self.pieces = Some(pieces);
            (self.gathered, self.text) = (Vec::new(), Vec::new());
        }
        Ok(is_long)
    }

    /// Cuts after a complete member; whether the rest was handed over.
    fn close_member(&mut self) -> Result<bool, ClientError> {
        if self.cut_long()? {
            return Ok(true);
        }
        if self.text.last().is_none_or(|&byte| byte == b'\n') {
            self.good = Good {
                bytes: self.gathered.len(),
                text: self.text.len(),
                position: self.position,
            };
        }
        // Bounds the size of many members without text.
        if self.good.text >= self.target || self.good.bytes >= self.target * MEMBER_TARGETS_MAX {
            self.cut_group();
        }
        Ok(false)
    }

    /// Cuts the members up to the last one that ends with a line.
    fn cut_group(&mut self) {
        let good = std::mem::take(&mut self.good);
        if good.bytes > 0 {
            let rest = self.gathered.split_off(good.bytes);
            let packet = std::mem::replace(&mut self.gathered, rest);
            self.cut = good.position;
            self.ready.push_back(Cut {
                bytes: Bytes::from(packet),
                position: good.position,
                text: Some(TextLength::of(&self.text[..good.text])),
            });
            self.text.drain(..good.text);
            self.member_text = self.member_text.saturating_sub(good.text);
        }
    }

    /// Cuts the rest, at the end of the file.
    fn cut_rest(&mut self) {
        let text = std::mem::take(&mut self.text);
        let packet = std::mem::take(&mut self.gathered);
        if !packet.is_empty() {
            self.ready.push_back(Cut {
                bytes: Bytes::from(packet),
                position: self.position,
                text: Some(TextLength::of(&text)),
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
            self.gathered
                .extend_from_slice(&target[filled..filled + length]);
            self.input.consume(length);
            self.position += length as u64;
            filled += length;
        }
        Ok(true)
    }

    /// The damaged part of the file that begins with the current member.
    fn damaged(&self, what: &str) -> ClientError {
        ClientError::damaged(self.path.display().to_string(), what)
    }

    /// Cuts what precedes damage in the current member, and goes on at the next one.
    fn pass_damage(&mut self, what: &str) -> Result<(), ClientError> {
        let end = end_of_damage(&self.path, self.member)?;
        let before = usize::try_from(self.member - self.cut).unwrap_or_default();
        if before > 0 {
            self.gathered.truncate(before);
            self.text.truncate(self.member_text);
            self.position = self.member;
            self.cut_rest();
        }
        let member = self.member;
        let damaged = damaged_member(member, what);
        let reason = format!("{damaged}: bytes {member} to {end} cannot be read");
        self.go_on_after(member..end, reason)
    }

    /// Goes on behind a damaged stretch of the file, which is cut next.
    fn go_on_after(&mut self, stretch: Range<u64>, reason: String) -> Result<(), ClientError> {
        let end = stretch.end;
        let sought = self.input.seek(SeekFrom::Start(end));
        sought.map_err(|error| ClientError::file(&self.path, error))?;
        self.damage.add(|| reason.clone());
        (self.gathered, self.text) = (Vec::new(), Vec::new());
        (self.position, self.cut) = (end, end);
        self.good = Good::default();
        self.sum.reset();
        self.inflate.reset(false);
        self.stage = Stage::Between;
        self.pieces = None;
        self.damaged = Some(Damaged::new(stretch, reason));
        Ok(())
    }

    /// The next packet of the rest that is cut into pieces. After damage there is no such rest.
    fn next_piece(&mut self) -> Result<Option<Cut>, ClientError> {
        let Some(pieces) = &mut self.pieces else {
            return Ok(None);
        };
        if let Some(cut) = pieces.next()? {
            return Ok(Some(cut));
        }
        if let Some(damage) = pieces.take_damage() {
            let end = match (damage.end, damage.member) {
                (Some(end), _) => end,
                (None, Some(member)) => end_of_damage(&self.path, member)?,
                (None, None) => damage.begin,
            };
            let end = end.max(damage.begin);
            self.go_on_after(damage.begin..end, damage.reason(end))?;
        } else if let Some(cut_off) = pieces.take_cut_off() {
            // Its text is read like that of an intact member.
            self.damaged = Some(Damaged::end(cut_off.end, cut_off.what));
        }
        Ok(None)
    }

    /// The next packet of a damaged stretch.
    fn next_damaged(&mut self) -> Result<Option<Cut>, ClientError> {
        let Some(damaged) = &mut self.damaged else {
            return Ok(None);
        };
        let Some(packet) = damaged.next(&mut Stretches::of_file(&self.path))? else {
            self.damaged = None;
            return Ok(None);
        };
        Ok(Some(Cut {
            bytes: packet.packet,
            position: damaged.at(),
            text: Some(TextLength { bytes: 0, lines: 0 }),
        }))
    }
}

impl Cutter for GzipCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        loop {
            if let Some(cut) = self.ready.pop_front() {
                return Ok(Some(cut));
            }
            if let Some(cut) = self.next_damaged()? {
                return Ok(Some(cut));
            }
            if self.stage != Stage::Done {
                match self.step() {
                    Err(ClientError::Damaged { what, .. }) => self.pass_damage(&what)?,
                    stepped => stepped?,
                }
                continue;
            }
            let piece = self.next_piece()?;
            if piece.is_some() || (self.stage == Stage::Done && self.damaged.is_none()) {
                return Ok(piece);
            }
        }
    }

    fn damage(&self) -> Option<String> {
        self.damage.summary(&self.path)
    }

    fn remark(&self) -> Option<String> {
        if let Some(pieces) = &self.pieces {
            return pieces.remark();
        }
        let (path, member) = (self.path.display(), self.member);
        self.torn
            .then(|| format!("{path}: the file ends inside the gzip member at offset {member}"))
    }
}
