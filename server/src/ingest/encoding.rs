//! `Content-Encoding` of packet bodies, decoded in pieces and with bounded memory.

use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

use super::error::IngestError;

/// Size of decoded pieces, in bytes.
const PIECE_BYTES: usize = 64 << 10;

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
                let mut decoder = ZstdDecoder::new().map_err(IngestError::damaged)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(log))
                    .map_err(IngestError::damaged)?;
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
    Zstd(ZstdDecoder<'static>),
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
                    .run(&mut from, &mut OutBuffer::around(&mut piece))
                    .map_err(IngestError::damaged)?;
                (from.pos(), hint == 0)
            }
        };
        if ended || used > 0 || !piece.is_empty() {
            self.within = !ended;
        }
        *input = &input[used..];
        Ok(piece)
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
