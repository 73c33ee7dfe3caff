//! Errors of the CTF decoder as errors of an adapter.

use crate::DecodeError;

impl From<ctf::DecodeError> for DecodeError {
    fn from(error: ctf::DecodeError) -> Self {
        let offset = error.offset / 8;
        match error.fault {
            ctf::DecodeFault::EndOfData { .. } => Self::Truncated {
                format: "ctf",
                offset,
            },
            _ => Self::Damaged {
                format: "ctf",
                offset,
                reason: error.to_string(),
            },
        }
    }
}
