//! Repair: finds what of a failed storage is whole, and lets its log continue without the rest.
//!
//! The log is read from its first batch past the page cache. At the first damage it is cut: what is
//! before stays as it is. The packets behind it that are whole are written again, as the first
//! batches of a new data file that continues the log at the cut (`io_thread/rewrite.rs`), so leaves
//! have no holes, and every reader finds an ordinary log. What is missing is recorded in the repair
//! file. Nothing that is there is changed.

mod chain;
mod damaged_file;
