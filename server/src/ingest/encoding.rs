//! `Content-Encoding` of packet bodies, decoded in pieces and with bounded memory.

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};
use storage_core::StorageError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use super::admission::ADMISSION_WAIT;
use super::error::IngestError;

/// Size of decoded pieces, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The unit in which memory of decoders is counted.
const UNIT_BYTES: u64 = 1024;
/// A decoder of gzip, with its window.
const GZIP_DECODER_BYTES: u64 = 48 << 10;

/// Memory of the decoders of all requests: few bytes declare a window of many, and a decoder has it
/// until its request ends.
#[derive(Debug, Clone)]
pub(super) struct DecoderMemory {
    free: Arc<Semaphore>,
    max: u64,
}

impl DecoderMemory {
    pub(super) fn new(bytes_max: u64) -> Self {
        let units = usize::try_from(bytes_max / UNIT_BYTES).unwrap_or(usize::MAX);
        Self {
            free: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            max: bytes_max,
        }
    }

    /// Adds to what a decoder holds, so that it holds `bytes`; waits for others to end.
    pub(super) async fn hold(
        &self,
        held: &mut Option<OwnedSemaphorePermit>,
        bytes: u64,
    ) -> Result<(), IngestError> {
        // One that needs more than there is has all of it.
        let needed = bytes.min(self.max).div_ceil(UNIT_BYTES);
        let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let lacking = needed.saturating_sub(has as u64);
        let Some(lacking) = u32::try_from(lacking).ok().filter(|lacking| *lacking > 0) else {
            return Ok(());
        };
        let free = Arc::clone(&self.free).acquire_many_owned(lacking);
        let Ok(Ok(more)) = tokio::time::timeout(ADMISSION_WAIT, free).await else {
            let of = "decoders of bodies";
            return Err(StorageError::ShareUsed { of, max: self.max }.into());
        };
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    /// Not encoded.
    Identity,
    Gzip,
    Zstd,
}

impl ContentEncoding {
    /// Reads `Content-Encoding`; at most one encoding is supported.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, IngestError> {
        let mut codings = headers
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
        match (codings.next(), codings.next()) {
            (None, _) => Ok(Self::Identity),
            (Some(coding), None) => Self::named(coding).ok_or(IngestError::EncodingUnsupported),
            _ => Err(IngestError::EncodingUnsupported),
        }
    }

    /// The encoding of this name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("identity") {
            Some(Self::Identity)
        } else if is("zstd") {
            Some(Self::Zstd)
        } else if is("gzip") || is("x-gzip") {
            Some(Self::Gzip)
        } else {
            None
        }
    }

    /// The decoder, or `None` for a body that is not encoded. A zstd frame with a window above
    /// `window_bytes_max` is refused: the decoder needs as much memory as the window, and a few
    /// bytes can declare gigabytes.
    pub(super) fn decoder(self, window_bytes_max: u64) -> Result<Option<Decoder>, IngestError> {
        let inner = match self {
            Self::Identity => return Ok(None),
            Self::Gzip => Inner::Gzip(Box::new(Decompress::new_gzip(15))),
            Self::Zstd => {
                let log = window_bytes_max.max(1).ilog2().clamp(10, 31);
                let failed = |code| IngestError::damaged(get_error_name(code));
                let mut decoder = DCtx::create();
                decoder
                    .set_parameter(DParameter::WindowLogMax(log))
                    .map_err(failed)?;
                Inner::Zstd(decoder)
            }
        };
        Ok(Some(Decoder {
            inner,
            within: false,
        }))
    }
}

enum Inner {
    Gzip(Box<Decompress>),
    Zstd(DCtx<'static>),
}

/// Decodes one encoding.
pub(super) struct Decoder {
    inner: Inner,
    /// A gzip member or zstd frame has begun and is not complete.
    within: bool,
}

impl Decoder {
    /// Decodes from the start of `input` and removes the bytes it used. The piece may be empty
    /// although `input` is not; call again until `input` is empty and the piece is not full.
    pub(super) fn step(&mut self, input: &mut &[u8]) -> Result<Vec<u8>, IngestError> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let (used, ended) = match &mut self.inner {
            Inner::Gzip(decoder) => {
                let before = decoder.total_in();
                let status = decoder
                    .decompress_vec(input, &mut piece, FlushDecompress::None)
                    .map_err(IngestError::damaged)?;
                let used = usize::try_from(decoder.total_in() - before).unwrap_or(0);
                let ended = status == Status::StreamEnd;
                if ended {
                    // Members may be concatenated (RFC 1952 section 2.2).
                    **decoder = Decompress::new_gzip(15);
                }
                (used, ended)
            }
            Inner::Zstd(decoder) => {
                let mut from = InBuffer::around(input);
                let hint = decoder
                    .decompress_stream(&mut OutBuffer::around(&mut piece), &mut from)
                    .map_err(|code| IngestError::damaged(get_error_name(code)))?;
                (from.pos(), hint == 0)
            }
        };
        if ended || used > 0 || !piece.is_empty() {
            self.within = !ended;
        }
        *input = &input[used..];
        Ok(piece)
    }

    /// Bytes that it has in memory.
    pub(super) fn memory(&self) -> u64 {
        match &self.inner {
            Inner::Gzip(_) => GZIP_DECODER_BYTES,
            Inner::Zstd(decoder) => decoder.sizeof() as u64,
        }
    }

    /// Whether a piece of this length means that the decoder may have more output.
    pub(super) fn may_have_more(piece: &[u8]) -> bool {
        piece.len() == PIECE_BYTES
    }

    /// Whether the input may end here.
    pub(super) fn is_complete(&self) -> bool {
        !self.within
    }
}
