//! The bytes of a result, in the pieces in which they are sent.

use std::io;

use bytes::Bytes;
use query_engine::{ReadError, Report};
use storage_core::CACHED_BYTES_MAX;
use tokio::sync::mpsc;

/// Bytes of rows that are sent together.
const PIECE_BYTES: usize = 64 << 10;

/// Reasons for skipped data that one result lists.
const REASONS_MAX: usize = 64;

/// What is known of a result at its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// Number of matching events; unknown for a cached result, for one that was complete before all
    /// events were read, and if it was estimated.
    pub(crate) matched: Option<u64>,
    /// Number of rows or groups of the result; unknown for a cached result.
    pub(crate) rows: Option<u64>,
    /// What a reader of the result must know.
    pub(crate) notes: Vec<String>,
    /// Number of records, packets and other parts that were skipped because they cannot be read.
    pub(crate) skipped: u64,
    /// What was skipped, and why; some of the reasons if there are many.
    pub(crate) reasons: Vec<String>,
}

impl Summary {
    pub(super) fn of(report: &Report) -> Self {
        Self {
            matched: (!report.ended_early && !report.is_matched_estimated)
                .then_some(report.matched),
            rows: Some(report.rows),
            notes: report.notes.clone(),
            skipped: report.skipped_parts(),
            reasons: report
                .skipped_reasons()
                .take(REASONS_MAX)
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// What the thread of a query sends to those who wait for its result.
pub(super) enum Message {
    /// Sent before the first piece, as far as it is known then; a later one replaces it.
    Summary(Summary),
    Piece(Bytes),
    Ended(Result<Summary, ReadError>),
}

/// Collects bytes into pieces, and waits while the client is slower.
pub(super) struct PieceWriter {
    pub(super) sender: mpsc::Sender<Message>,
    pub(super) piece: Vec<u8>,
    pub(super) has_sent: bool,
    /// The result so far, while it is short enough to be cached.
    pub(super) cacheable: Option<Vec<u8>>,
}

impl PieceWriter {
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(bytes);
        if let Some(result) = &mut self.cacheable {
            result.extend_from_slice(bytes);
            if result.len() > CACHED_BYTES_MAX {
                self.cacheable = None;
            }
        }
        if self.piece.len() >= PIECE_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.has_sent = true;
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        // A closed channel means that the client has disconnected.
        let sent = self.sender.blocking_send(Message::Piece(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends the summary before the first piece.
    pub(super) fn announce(&self, summary: &Summary) -> Result<(), ReadError> {
        if self.has_sent {
            return Ok(());
        }
        let summary = Message::Summary(summary.clone());
        let sent = self.sender.blocking_send(summary);
        sent.map_err(|_| ReadError::Output(io::ErrorKind::BrokenPipe.into()))
    }

    /// Sends the remaining bytes, after the summary if nothing was sent yet.
    pub(super) fn end(&mut self, summary: &Summary) -> Result<(), ReadError> {
        self.announce(summary)?;
        self.flush().map_err(ReadError::Output)
    }
}

#[cfg(test)]
mod tests {
    use query_engine::Skipped;

    use super::*;

    #[test]
    fn a_summary_counts_all_that_was_skipped_and_lists_some() {
        let reason = |number: usize| format!("reason {number}");
        for (reasons, listed) in [(0, 0), (63, 63), (64, 64), (65, 64), (200, 64)] {
            let report = Report {
                skipped: (0..reasons)
                    .map(|number| Skipped {
                        storage: None,
                        parts: 3,
                        reasons: vec![reason(number)],
                    })
                    .collect(),
                ..Report::default()
            };
            let summary = Summary::of(&report);
            assert_eq!(summary.skipped, 3 * reasons as u64);
            assert_eq!(summary.reasons, (0..listed).map(reason).collect::<Vec<_>>());
        }
    }
}
