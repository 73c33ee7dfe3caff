use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use ctf::{Leniency, Procedure, parse_metadata_with};
use ctf_folder::{Preamble, PreambleError, read_packet_index};
use storage_format::limits::{AGENT_METADATA_BYTES_MAX, PACKET_BYTES_MAX};

use super::{Cut, Cutter, End};
use crate::ClientError;

/// Maximum size of an index file: four million packets.
const INDEX_BYTES_MAX: u64 = 288 << 20;

/// Cuts a CTF data stream file into the packets of its producer.
#[derive(Debug)]
pub struct CtfCutter {
    path: PathBuf,
    file: File,
    /// Its length when it was last looked at.
    length: u64,
    packets: Packets,
    position: u64,
    remark: Option<String>,
    /// Length and time of the last change of the metadata, if the file is followed.
    described: Option<(u64, SystemTime)>,
}

/// How the lengths of the packets are determined.
#[derive(Debug)]
enum Packets {
    /// By the index of the file. Lengths in reverse order.
    Index(Vec<u64>),
    /// By the packets.
    SelfDescribed(Box<Procedure>),
    /// Not at all: the rest of the file is one packet.
    Unknown,
}

impl CtfCutter {
    /// Opens a data stream file of a trace.
    ///
    /// The index `index/NAME.idx` gives the lengths of the packets if it covers the file exactly.
    /// Otherwise the packets themselves do, read with the metadata in the same folder. If there is
    /// no metadata or a packet is damaged, the rest of the file is one packet: no byte is skipped.
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".idx");
        let index = read_optional(&folder.join("index").join(name), INDEX_BYTES_MAX)?;
        let index = index.and_then(|bytes| read_packet_index(&bytes, length));
        let (packets, remark) = match index {
            Some(entries) => {
                let lengths = entries.iter().rev().map(|entry| entry.total_length / 8);
                (Packets::Index(lengths.collect()), None)
            }
            None => procedure(folder)?,
        };
        Ok(Self {
            remark: remark.map(|what| format!("{}: {what}", path.display())),
            path: path.to_owned(),
            file,
            length,
            packets,
            position: 0,
            described: None,
        })
    }

    /// Opens a data stream file, to cut what follows its first `offset` bytes, which were cut
    /// before, perhaps with other metadata or another index.
    ///
    /// # Errors
    /// If no packet begins there: to send the packet around it would send its beginning twice.
    pub fn resume(path: &Path, offset: u64) -> Result<Self, ClientError> {
        let mut cutter = Self::open(path)?;
        if cutter.pass(offset)? {
            return Ok(cutter);
        }
        // The rest may consist of packets all the same.
        let failed = |error| ClientError::file(path, error);
        let (packets, _) = procedure(path.parent().unwrap_or(Path::new("")))?;
        let mut end = offset;
        while let Packets::SelfDescribed(procedure) = &packets
            && end < cutter.length
        {
            let rest = cutter.length - end;
            match declared_length(procedure, &cutter.file, end, rest).map_err(failed)? {
                Ok(Some(length)) => end += length,
                Ok(None) | Err(_) => break,
            }
        }
        if end < cutter.length || cutter.length < offset {
            let what = format!(
                "the server has its first {offset} bytes in packets that were cut with other \
                 metadata, and no packet ends there by the metadata of today; push the folder \
                 under another name with --agent, or into another storage"
            );
            return Err(ClientError::damaged(path.display().to_string(), what));
        }
        let (position, remark) = (offset, None);
        Ok(Self {
            packets,
            position,
            remark,
            ..cutter
        })
    }

    /// Passes the packets before `offset`; whether one ends there.
    fn pass(&mut self, offset: u64) -> Result<bool, ClientError> {
        if matches!(self.packets, Packets::Unknown) {
            // The rest is one packet, wherever it begins.
            self.position = offset.min(self.length);
        }
        while self.position < offset {
            match self.next_length()? {
                Some(length) => self.position += length,
                None => break,
            }
        }
        Ok(self.position == offset)
    }

    /// The lengths of the packets of a data stream file.
    pub fn lengths(path: &Path) -> Result<Vec<u64>, ClientError> {
        let mut cutter = Self::open(path)?;
        let mut lengths = Vec::new();
        while let Some(length) = cutter.next_length()? {
            cutter.position += length;
            lengths.push(length);
        }
        Ok(lengths)
    }

    /// Opens a data stream file that grows, to cut it from `offset`, which must be the end of a
    /// packet. The packets themselves give their lengths: an index is written later than they are.
    pub fn follow(path: &Path, offset: u64) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let (packets, unknown) = procedure(path.parent().unwrap_or(Path::new("")))?;
        if let Some(what) = unknown {
            let what = format!("{} cannot be followed: {what}", path.display());
            return Err(ClientError::input(what));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            packets,
            position: offset,
            remark: None,
            described: described(path),
        })
    }

    /// Whether a folder has metadata with which packets can be read.
    pub fn has_metadata(folder: &Path) -> bool {
        matches!(procedure(folder), Ok((Packets::SelfDescribed(_), _)))
    }

    /// Reads the metadata again if it has changed; whether it has. A packet of another stream may
    /// be written before the metadata that describes it.
    fn read_metadata_again(&mut self) -> Result<bool, ClientError> {
        let now = described(&self.path);
        if now.is_none() || now == self.described {
            return Ok(false);
        }
        let (packets, _) = procedure(self.path.parent().unwrap_or(Path::new("")))?;
        let is_readable = matches!(packets, Packets::SelfDescribed(_));
        if is_readable {
            (self.packets, self.described) = (packets, now);
        }
        Ok(is_readable)
    }

    /// The length of the packet at the position of a growing file, if all of it was written.
    fn next_written(&mut self) -> Result<Option<u64>, ClientError> {
        let failed = |error| ClientError::file(&self.path, error);
        self.length = self.file.metadata().map_err(failed)?.len();
        let rest = self.length.saturating_sub(self.position);
        let Packets::SelfDescribed(procedure) = &self.packets else {
            return Ok(None);
        };
        if rest == 0 {
            return Ok(None);
        }
        match declared_length(procedure, &self.file, self.position, rest).map_err(failed)? {
            Ok(Some(length)) => Ok(Some(length)),
            Ok(None) => Err(ClientError::input(format!(
                "{} cannot be followed: its packets do not declare their length",
                self.path.display()
            ))),
            // It is being written. What is damaged is sent when the file is replaced.
            Err(_) if !self.read_metadata_again()? => Ok(None),
            Err(_) => self.next_written(),
        }
    }

    /// The length of the packet at the position; `None` at the end of the file.
    fn next_length(&mut self) -> Result<Option<u64>, ClientError> {
        let rest = self.length.saturating_sub(self.position);
        if rest == 0 {
            return Ok(None);
        }
        let declared = match &mut self.packets {
            Packets::Index(lengths) => lengths.pop(),
            Packets::Unknown => None,
            Packets::SelfDescribed(procedure) => {
                let declared = declared_length(procedure, &self.file, self.position, rest);
                match declared.map_err(|error| ClientError::file(&self.path, error))? {
                    Ok(length) => length,
                    Err(what) => {
                        let (path, position) = (self.path.display(), self.position);
                        self.remark = Some(format!(
                            "{path}: the end of the packet at offset {position} is unknown \
                             ({what}); the rest of the file is pushed as one packet"
                        ));
                        None
                    }
                }
            }
        };
        Ok(Some(declared.unwrap_or(rest)))
    }
}

/// Length and time of the last change of the metadata beside a stream file.
fn described(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = std::fs::metadata(path.with_file_name("metadata")).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// How to read packets with the metadata in a folder, or a note about why that is impossible.
fn procedure(folder: &Path) -> Result<(Packets, Option<String>), ClientError> {
    let unknown = |what: String| Ok((Packets::Unknown, Some(what)));
    let bound = AGENT_METADATA_BYTES_MAX as u64;
    let Some(metadata) = read_optional(&folder.join("metadata"), bound)? else {
        return unknown("its folder has no metadata, so it is pushed as one packet".to_owned());
    };
    let parsed = match parse_metadata_with(&metadata, Leniency::Lenient) {
        Ok(parsed) => parsed,
        Err(error) => return unknown(format!("metadata: {error}; it is pushed as one packet")),
    };
    match Procedure::new(parsed.trace) {
        Ok(procedure) => Ok((Packets::SelfDescribed(Box::new(procedure)), None)),
        Err(error) => unknown(format!("metadata: {error}; it is pushed as one packet")),
    }
}

/// The length that the packet at `position` declares, if any; the inner error says why it cannot be
/// read.
fn declared_length(
    procedure: &Procedure,
    file: &File,
    position: u64,
    rest: u64,
) -> std::io::Result<Result<Option<u64>, String>> {
    match Preamble::read(procedure, file, position, rest) {
        Ok(preamble) => Ok(match preamble.packet_bytes() {
            Some(length) if length == 0 || length > rest => Err(format!(
                "it declares a length of {length} bytes, and {rest} are left"
            )),
            length => Ok(length),
        }),
        Err(PreambleError::Io(error)) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Reads a complete file. `None` if it does not exist or is longer than `max`.
fn read_optional(path: &Path, max: u64) -> Result<Option<Vec<u8>>, ClientError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes)) {
        Ok(read) => Ok((read as u64 <= max).then_some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ClientError::file(path, error)),
    }
}

impl Cutter for CtfCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let length = match end {
            End::Final => self.next_length()?,
            End::Growing | End::Pause => self.next_written()?,
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let place = || format!("{} at offset {}", self.path.display(), self.position);
        if length > u64::from(PACKET_BYTES_MAX) {
            let what =
                format!("a packet has {length} bytes, more than the maximum of {PACKET_BYTES_MAX}");
            return Err(ClientError::damaged(place(), what));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = self.file.read_exact_at(&mut bytes, self.position);
        read.map_err(|error| ClientError::file(&self.path, error))?;
        self.position += length;
        Ok(Some(Cut {
            bytes: Bytes::from(bytes),
            position: self.position,
            text: None,
        }))
    }

    fn skip(&mut self, count: u64) -> Result<u64, ClientError> {
        for done in 0..count {
            match self.next_length()? {
                Some(length) => self.position += length,
                None => return Ok(done),
            }
        }
        Ok(count)
    }

    fn remark(&self) -> Option<String> {
        self.remark.clone()
    }
}
