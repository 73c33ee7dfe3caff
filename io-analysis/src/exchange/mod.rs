//! Export formats of other programs.

mod csv;
mod fio;
mod oracle;

pub use csv::{IO_CSV_HEADING, put_io_csv};
pub use fio::FioIolog;
pub use oracle::OracleGeneral;
