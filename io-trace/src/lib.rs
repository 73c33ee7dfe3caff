//! Traces the I/O of the server: the hooks that I/O threads and caches call.
//!
//! A [`Tracer`] is off until it is started; a hook then costs one relaxed load. While it is on, a
//! hook takes the time before and after its operation and adds a [`Record`] to the buffer of its
//! thread. Buffers are bounded: records that do not fit are counted, never waited for. The code
//! that started the tracer drains the buffers; this crate does not know what becomes of the
//! records.
//!
//! A [`Scope`] around an operation says why it is done, and for which request.

#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the numbers of tests are small"
    )
)]

mod batch;
mod file_name;
mod file_tag;
mod names;
mod record;
mod records;
mod scope;
mod settings;
mod tracer;

pub use file_name::FileName;
pub use file_tag::FileTag;
pub use names::{BlockType, Cause, FileClass, Operation};
pub use record::{Access, Block, Record, errno};
pub use records::Records;
pub use scope::{Guard, Requests, Scope, Surroundings, current, current_request};
pub use settings::{Settings, SettingsError};
pub use tracer::{Drained, Started, Tracer};
