//! gRPC over HTTP/2, as far as a call with one message and one reply needs it: the frame around a
//! message, the status in the trailers, deadlines.

mod message;
mod response;
mod timeout;

pub(crate) use message::{Compression, open};
pub(crate) use response::{is_grpc, refusal, reply};
pub(crate) use timeout::timeout_of;
