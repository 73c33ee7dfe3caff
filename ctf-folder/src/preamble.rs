//! The preamble of a packet: its header and context, which precede the first event record.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ctf::class::StreamClassIndex;
use ctf::{DecodeError, Element, ElementReader, PacketInfo, Procedure};

/// The magic number of packets.
const PACKET_MAGIC: u32 = 0xc1fc_1fc1;
/// Bytes of the first read; most preambles have some hundred bytes.
const FIRST_READ_BYTES: u64 = 4 << 10;
/// Longest preamble that is read from a file.
const PREAMBLE_BYTES_MAX: u64 = 1 << 20;

/// The values of a packet's header and context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Preamble {
    /// Class of the packet's stream.
    pub class: Option<StreamClassIndex>,
    /// Id of the stream in its class.
    pub stream: Option<u64>,
    /// Cycles of the default clock at the beginning, when the context has a timestamp.
    pub begin_clock: Option<u64>,
    /// Lengths in bits, counters, and the clock at the end.
    pub info: PacketInfo,
}

/// Why the preamble of a packet in a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PreambleError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The bytes do not begin with the magic number of packets, or in the other byte order.
    #[error(transparent)]
    Magic(#[from] MagicError),
}

/// The magic number of a packet is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MagicError {
    /// The bytes are in the other byte order than the metadata says.
    #[error("its magic number is in the other byte order than that of the metadata")]
    ByteOrder,
    /// It is another number.
    #[error("its magic number is {found:#x}, not {PACKET_MAGIC:#x}; it is no packet of this trace")]
    Other {
        /// The number.
        found: u64,
    },
}

impl MagicError {
    /// Checks the magic number of a packet.
    fn check(found: u64) -> Result<(), Self> {
        match u32::try_from(found) {
            Ok(PACKET_MAGIC) => Ok(()),
            Ok(found) if found.swap_bytes() == PACKET_MAGIC => Err(Self::ByteOrder),
            _ => Err(Self::Other { found }),
        }
    }
}

impl Preamble {
    /// Decodes the preamble of the packet at the beginning of `data`.
    ///
    /// # Errors
    /// When the header or the context cannot be decoded, or the magic number is wrong.
    pub fn decode(procedure: &Procedure, data: &[u8]) -> Result<Self, PreambleError> {
        let mut reader = ElementReader::new(procedure, data);
        let mut preamble = Self::default();
        while let Some(&element) = reader.next_element()? {
            match element {
                Element::MagicNumber(found) => MagicError::check(found)?,
                Element::StreamInfo(info) => {
                    let trace = procedure.trace_class();
                    preamble.class = info
                        .class
                        .and_then(|class| trace.find_stream_class(class.id));
                    preamble.stream = info.id;
                }
                Element::ClockValue(cycles) => preamble.begin_clock = Some(cycles),
                Element::PacketInfo => preamble.info = *reader.packet_info(),
                Element::RecordBegin | Element::ContentEnd | Element::PacketEnd => break,
                _ => {}
            }
        }
        Ok(preamble)
    }

    /// Reads the preamble of the packet at `offset` of `file`, after which `rest` bytes follow up
    /// to the end of the file. Reads more only when the first bytes are not enough.
    ///
    /// # Errors
    /// When the file cannot be read, or the header or the context cannot be decoded.
    pub fn read(
        procedure: &Procedure,
        file: &File,
        offset: u64,
        rest: u64,
    ) -> Result<Self, PreambleError> {
        let mut wanted = FIRST_READ_BYTES;
        loop {
            let length = usize::try_from(wanted.min(rest)).expect("at most 1 MiB");
            let mut data = vec![0; length];
            file.read_exact_at(&mut data, offset)?;
            match Self::decode(procedure, &data) {
                Ok(preamble) => return Ok(preamble),
                Err(error @ PreambleError::Magic(_)) => return Err(error),
                Err(error) if wanted >= rest.min(PREAMBLE_BYTES_MAX) => return Err(error),
                Err(_) => wanted = (wanted * 16).min(PREAMBLE_BYTES_MAX),
            }
        }
    }

    /// The length of the packet in bytes, padding included, when the context has it.
    pub fn packet_bytes(&self) -> Option<u64> {
        self.info.total_length.map(|bits| bits / 8)
    }
}
