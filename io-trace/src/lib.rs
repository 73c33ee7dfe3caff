//! Recording of our own I/O: what the doors to the disk and the caches call.
//!
//! A [`Tracer`] is off until it is started; a hook then costs one relaxed load. While it is on,
//! a hook takes the time before and after its operation and puts a [`Record`] into the buffer of
//! its thread. Buffers are bounded: what does not fit is counted, never waited for. Whoever
//! started the tracer drains the buffers; what becomes of the records is not known here.
//!
//! Why an operation is done, and for which request, is said by a [`Scope`] around it.

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
