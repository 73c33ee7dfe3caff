//! Ranges of a data file to packets.

use std::io::{self, ErrorKind};
use std::ops::{ControlFlow, Range};

use storage_format::Codec;
use storage_format::checksum::{crc32c, crc32c_append};
use storage_format::frame::{ALIGNMENT, FrameHeader, FrameLocation, HEADER_BYTES};
use storage_format::index_part::PacketEntry;

use super::Leaf;
use super::ranges::{joined, outside};
use crate::{Fetch, ReadError};

/// Bytes of a run per fetch.
const WINDOW_BYTES: u64 = 4 << 20;
/// Damaged frames that are reported by one reader; the others are counted.
const FAULTS_MAX: usize = 16;

/// Decompresses packets into a buffer that is reused.
#[derive(Default)]
pub(crate) struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    raw: Vec<u8>,
}

impl Decompressor {
    /// The raw packet, or what is wrong with it.
    fn expand<'a>(
        &'a mut self,
        header: &FrameHeader,
        stored: &'a [u8],
    ) -> Result<&'a [u8], &'static str> {
        let raw = match header.codec {
            Codec::None => stored,
            Codec::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(
                        zstd::bulk::Decompressor::new()
                            .map_err(|_| "there is no memory to decompress it")?,
                    ),
                };
                self.raw.clear();
                self.raw.reserve(header.raw_size as usize);
                zstd.decompress_to_buffer(stored, &mut self.raw)
                    .map_err(|_| "it cannot be decompressed")?;
                &self.raw
            }
        };
        if raw.len() == header.raw_size as usize && crc32c(raw) == header.raw_checksum {
            Ok(raw)
        } else {
            Err("its checksum does not match")
        }
    }
}

/// The header of a packet that the index of the storage lists.
fn header_of(entry: &PacketEntry) -> FrameHeader {
    FrameHeader {
        codec: entry.codec,
        stored_size: entry.stored_size,
        raw_size: entry.raw_size,
        number: entry.number,
        position: entry.position,
        arrival: 0,
        facts: entry.facts,
        stored_checksum: 0,
        raw_checksum: entry.raw_checksum,
    }
}

/// Called for each packet, with the header and the offset of its frame.
pub(crate) type EachPacket<'f> =
    dyn FnMut(&FrameHeader, u64, &[u8]) -> Result<ControlFlow<()>, ReadError> + 'f;

/// Reads the frames of one leaf.
pub(crate) struct Frames<'l> {
    pub(crate) leaf: &'l Leaf,
    pub(crate) data: &'l dyn Fetch,
    pub(crate) decompressor: Decompressor,
    /// Bytes fetched so far.
    pub(crate) fetched_bytes: u64,
    /// CRC32C of the runs read so far, continued from the value it was set to.
    pub(crate) checksum: u32,
    /// The damage that was skipped; `None` where damage is an error.
    damage: Option<Damage>,
    /// Ranges that the data file lacks, ascending.
    missing: Vec<Range<u64>>,
    /// Up to where packets were read from elsewhere.
    passed: u64,
}

/// Damaged frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Number of damaged packets, and of damaged places between packets.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) faults: Vec<String>,
    /// Whether the frames before were damaged, too: one place is reported once.
    is_searching: bool,
}

impl Damage {
    fn add(&mut self, error: &ReadError) {
        self.count += 1;
        if self.faults.len() < FAULTS_MAX {
            let cause = std::error::Error::source(error);
            self.faults.push(match cause {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            });
        }
    }
}

impl<'l> Frames<'l> {
    pub(crate) fn new(leaf: &'l Leaf, data: &'l dyn Fetch) -> Frames<'l> {
        Frames {
            leaf,
            data,
            decompressor: Decompressor::default(),
            fetched_bytes: 0,
            checksum: 0,
            damage: None,
            missing: Vec::new(),
            passed: 0,
        }
    }

    /// Skips what is damaged instead of failing, and reads on at the next intact frame.
    pub(crate) fn skipping_damage(mut self) -> Frames<'l> {
        self.damage = Some(Damage::default());
        self
    }

    /// The damage that was skipped.
    pub(crate) fn into_damage(self) -> Damage {
        self.damage.unwrap_or_default()
    }

    /// Notes that what comes next is not damaged with what was before. Returns whether that was.
    fn is_intact_again(&mut self) -> bool {
        let damage = self.damage.as_mut();
        damage.is_some_and(|damage| std::mem::take(&mut damage.is_searching))
    }

    /// Reports that a range ends inside a frame, unless that frame is damaged and was reported.
    fn cut_short(&mut self, offset: u64) -> Result<(), ReadError> {
        if self.is_intact_again() {
            Ok(())
        } else {
            self.skip(self.cut(offset))
        }
    }

    /// Skips damage, or returns the error.
    fn skip(&mut self, error: ReadError) -> Result<(), ReadError> {
        match &mut self.damage {
            Some(damage) => {
                damage.add(&error);
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Fetches ranges of complete frames in one request, and passes their packets on.
    pub(crate) fn read_ranges(
        &mut self,
        ranges: &[Range<u64>],
        each: &mut EachPacket<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let parts = self.fetch(ranges)?;
        for (range, bytes) in ranges.iter().zip(&parts) {
            let _ = self.is_intact_again();
            let (used, flow) = self.walk(bytes, range.start, each)?;
            if flow.is_break() {
                return Ok(flow);
            }
            if used as u64 != range.end - range.start {
                self.cut_short(range.start + used as u64)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on the packets of a run of any length, with one window of it in memory at a time.
    pub(crate) fn read_run(
        &mut self,
        run: Range<u64>,
        each: &mut EachPacket<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let (mut at, mut window) = (run.start, WINDOW_BYTES);
        let _ = self.is_intact_again();
        while at < run.end {
            let end = run.end.min(at.saturating_add(window));
            let bytes = self.fetch(std::slice::from_ref(&(at..end)))?.remove(0);
            let (used, flow) = self.walk(&bytes, at, each)?;
            self.checksum = crc32c_append(self.checksum, bytes.get(..used).unwrap_or_default());
            if flow.is_break() {
                return Ok(flow);
            }
            window = match used {
                0 if end == run.end => {
                    self.cut_short(at)?;
                    break;
                }
                0 => self.header(&bytes, at)?.frame_bytes(),
                _ => WINDOW_BYTES,
            };
            at += used as u64;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn fetch(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ReadError> {
        let parts = match self.data.fetch(ranges) {
            Err(error) if self.damage.is_some() && may_be_lost(&error) => {
                self.fetch_rest(ranges, error)
            }
            parts => parts,
        };
        let parts = parts.map_err(|error| ReadError::fetch(self.data.place(), error))?;
        self.fetched_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(parts)
    }

    /// The bytes of ranges of which the data file lacks some, with zeros in their place: they are
    /// no frame, and reading goes on behind them. If it lacks none, they were not sent for another
    /// reason, which stays an error.
    fn fetch_rest(&mut self, ranges: &[Range<u64>], error: io::Error) -> io::Result<Vec<Vec<u8>>> {
        let lost = self.data.lost(ranges)?;
        if lost.is_empty() {
            return Err(error);
        }
        let rest: Vec<Range<u64>> = ranges
            .iter()
            .flat_map(|range| outside(range, &lost))
            .collect();
        let mut found = self.data.fetch(&rest)?.into_iter();
        let length = |from: u64, to: u64| usize::try_from(to - from).unwrap_or(usize::MAX);
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut part = vec![0; length(range.start, range.end)];
            for (here, bytes) in outside(range, &lost).zip(&mut found) {
                let at = length(range.start, here.start);
                let place = part.get_mut(at..at.saturating_add(bytes.len()));
                place
                    .ok_or(ErrorKind::UnexpectedEof)?
                    .copy_from_slice(&bytes);
            }
            parts.push(part);
        }
        self.missing = joined(lost.into_iter());
        Ok(parts)
    }

    /// Passes on the packets of the complete frames at the start of `bytes`, which are at offset
    /// `base`. Returns the bytes of these frames.
    fn walk(
        &mut self,
        bytes: &[u8],
        base: u64,
        each: &mut EachPacket<'_>,
    ) -> Result<(usize, ControlFlow<()>), ReadError> {
        // A packet of the window before may extend into this one.
        let passed = self.passed.saturating_sub(base);
        let mut at = usize::try_from(passed).map_or(bytes.len(), |at| at.min(bytes.len()));
        while bytes.len() - at >= HEADER_BYTES {
            let offset = base + at as u64;
            let header = match self.header(&bytes[at..], offset) {
                Ok(header) => header,
                Err(error) => {
                    if let Some(flow) = self.found_elsewhere(offset, each)? {
                        let end = usize::try_from(self.passed - base);
                        at = end.map_or(bytes.len(), |end| end.min(bytes.len()));
                        if flow.is_break() {
                            return Ok((at, flow));
                        }
                        continue;
                    }
                    at += self.after_damage(&bytes[at..], offset, error)?;
                    continue;
                }
            };
            let _ = self.is_intact_again();
            let payload = at + HEADER_BYTES;
            let Some(stored) = bytes.get(payload..payload + header.stored_size as usize) else {
                break;
            };
            // The padding after the last payload of a file may be missing.
            let frame = usize::try_from(header.frame_bytes()).unwrap_or(usize::MAX);
            at = at.saturating_add(frame).min(bytes.len());
            let flow = match self.decompressor.expand(&header, stored) {
                Ok(raw) => each(&header, offset, raw)?,
                Err(problem) => match self.found_elsewhere(offset, each)? {
                    Some(flow) => flow,
                    None => {
                        self.skip(self.damaged(offset + HEADER_BYTES as u64, problem))?;
                        ControlFlow::Continue(())
                    }
                },
            };
            if flow.is_break() {
                return Ok((at, flow));
            }
        }
        Ok((at, ControlFlow::Continue(())))
    }

    /// Passes on the packets from `offset` to the end of what the data file lacks there, if they
    /// can be read from elsewhere.
    fn found_elsewhere(
        &mut self,
        offset: u64,
        each: &mut EachPacket<'_>,
    ) -> Result<Option<ControlFlow<()>>, ReadError> {
        let following = self.missing.partition_point(|range| range.end <= offset);
        let Some(missing) = self.missing.get(following).cloned() else {
            return Ok(None);
        };
        let is_header_missing = missing.start <= offset;
        let range = if is_header_missing {
            offset..missing.end
        } else {
            offset..offset + 1
        };
        let found = self.data.packets_in(range);
        let Some(found) = found.filter(|found| is_header_missing || !found.is_empty()) else {
            return Ok(None);
        };
        let mut end = if is_header_missing {
            missing.end
        } else {
            offset
        };
        let mut flow = ControlFlow::Continue(());
        for (entry, raw) in found {
            let header = header_of(&entry);
            let frame = entry.offset.saturating_sub(HEADER_BYTES as u64);
            end = end.max(frame.saturating_add(header.frame_bytes()));
            match raw {
                Ok(raw) if crc32c(&raw) == entry.raw_checksum => {
                    let _ = self.is_intact_again();
                    flow = each(&header, frame, &raw)?;
                }
                Ok(_) => self.skip(self.damaged(entry.offset, "its checksum does not match"))?,
                Err(error) => self.skip(ReadError::fetch(self.data.place(), error))?,
            }
            if flow.is_break() {
                break;
            }
        }
        self.passed = end;
        Ok(Some(flow))
    }

    fn damaged(&self, offset: u64, problem: &'static str) -> ReadError {
        ReadError::DamagedPacket {
            place: self.data.place(),
            offset,
            problem,
        }
    }

    /// The bytes to skip where no intact header is: up to the next one, or up to where the rest is
    /// too short for a header. Fails if damage is not skipped.
    fn after_damage(
        &mut self,
        bytes: &[u8],
        offset: u64,
        error: ReadError,
    ) -> Result<usize, ReadError> {
        let was_searching = match &mut self.damage {
            Some(damage) => std::mem::replace(&mut damage.is_searching, true),
            None => false,
        };
        if !was_searching {
            self.skip(error)?;
        }
        let mut at = ALIGNMENT;
        while bytes.len().saturating_sub(at) >= HEADER_BYTES {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.header(rest, offset + at as u64).is_ok() {
                break;
            }
            at += ALIGNMENT;
        }
        Ok(at.min(bytes.len()))
    }

    fn header(&self, bytes: &[u8], offset: u64) -> Result<FrameHeader, ReadError> {
        let place = FrameLocation {
            storage: self.leaf.storage,
            leaf: self.leaf.leaf,
            offset,
        };
        FrameHeader::decode(bytes, place).map_err(|source| ReadError::DamagedFrame {
            place: self.data.place(),
            source,
        })
    }

    fn cut(&self, offset: u64) -> ReadError {
        self.damaged(offset, "it ends inside its frame")
    }
}

/// Whether a read may have failed because bytes are lost.
fn may_be_lost(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionAborted
    )
}
