//! Why the rest of a request is not admitted, although its head was.

use thiserror::Error;

use super::token::Why;

/// Why the rest of a body is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ended {
    /// The server has tokens now, and the request has none.
    #[error("the server has tokens since the request began")]
    NoToken,
    /// Its token is no longer good.
    #[error("the token is no longer accepted")]
    Token(Why),
}
