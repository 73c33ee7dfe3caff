//! Events and groups as bytes: text, NDJSON, CSV, Arrow, Parquet, Perfetto and Chrome.
//!
//! | what | type |
//! | --- | --- |
//! | the formats, and their names and media types | [`Format`] |
//! | the fields of an event that a row contains | [`Columns`] |
//! | an event as one row, on any thread | [`RowFormat`] |
//! | the rows of a result in order, with header and footer | [`RowSink`] |
//! | what the footer of a Parquet file says of its columns | [`TableFacts`] |
//! | the actions of a Delta Lake table as a checkpoint | [`write_delta_checkpoint`] |
//! | groups of events with their totals | [`GroupRow`], [`write_groups`] |

mod cells;
mod chrome;
mod columns;
mod csv;
mod delta_checkpoint;
mod format;
mod groups;
mod json;
mod lines;
mod ndjson;
mod path_set;
mod perfetto;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod timeline;

pub use chrome::Chrome;
pub use columns::{Column, Columns};
pub use csv::Csv;
pub use delta_checkpoint::write_delta_checkpoint;
pub use format::Format;
pub use groups::{
    GroupColumn, GroupColumnKind, GroupRow, GroupsError, write_group_ndjson, write_groups,
};
pub use json::{write_json_string, write_json_value};
pub use ndjson::Ndjson;
pub use perfetto::Perfetto;
pub use rows::{Known, Out, RowFormat, RowSink, SinkOptions};
pub use table::{ColumnFacts, Limit, PlainColumn, PlainType, Table, TableFacts, TableKind};
pub use text::Text;
