//! Errors of the CTF decoder as errors of an adapter.

use crate::DecodeError;

/// The error of an adapter for an error of the CTF decoder.
pub fn in_packet(error: ctf::DecodeError) -> DecodeError {
    let offset = error.offset / 8;
    match error.fault {
        ctf::DecodeFault::EndOfData { .. } => DecodeError::Truncated {
            format: "ctf",
            offset,
        },
        _ => DecodeError::Damaged {
            format: "ctf",
            offset,
            reason: error.to_string(),
        },
    }
}
