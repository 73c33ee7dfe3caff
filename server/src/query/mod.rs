//! Queries over storages: their leaves are sources of `query-engine`, each query runs on its own
//! thread, and rows are streamed as they are found.

mod events;
mod execution;
mod missing;
mod pieces;
mod queries;
mod question;
mod splits;
mod table_files;
mod time_bases;
mod unreadable;

pub(crate) use events::EventsError;
pub(crate) use execution::{Answer, Rows, columns};
pub(crate) use missing::missing;
pub(crate) use pieces::Summary;
pub(crate) use queries::{Permit, Queries};
pub(crate) use question::{AnswerError, Question, ResultKind, RowsFormat};
pub(crate) use table_files::{TableFile, table_columns};
pub(crate) use time_bases::{declarations, is_of_packets, time_bases};
pub(crate) use unreadable::{Unreadable, UnreadableData};
