//! Execution of a query, and its streamed result.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use io_trace::Cause;
use query_engine::{
    BareTimes, Cancel, Limits, ReadError, Report, Skipped, StorageSet, StoredLeaf, count,
    derived_note, field_columns, group_by, list_fields, without_derived, write_rows,
};
use row_formats::{Columns, Format, GroupColumn, GroupRow, Known, Out, write_groups};
use storage_core::{Engine, StorageError};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::missing::missing;
use super::pieces::{Message, PieceWriter, Summary};
use super::queries::{Permit, Queries};
use super::question::{AnswerError, Question, ResultKind};
use super::splits::leaves_of;
use super::unreadable::UnreadableData;
use crate::chunk_indexes::ChunkIndexes;
use crate::metrics::Metrics;
use crate::stored_leaves::stored_leaves;

/// Maximum number of pieces that wait for a slow client.
const PIECES_MAX: usize = 8;

/// A result whose first bytes are known.
pub(crate) struct Answer {
    /// The first bytes, possibly all of them.
    pub(crate) first: Bytes,
    /// The summary of the result, if it was known before the first bytes were sent.
    pub(crate) summary: Option<Summary>,
    /// The remaining bytes.
    pub(crate) rest: Rows,
}

/// The remainder of a result, in pieces. Dropping it cancels the query.
pub(crate) struct Rows {
    messages: mpsc::Receiver<Message>,
    is_finished: bool,
    summary: Option<Summary>,
    cancel: Cancel,
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Rows {
    /// An empty remainder.
    fn empty() -> Self {
        let (_, messages) = mpsc::channel(1);
        Self {
            messages,
            is_finished: true,
            summary: Some(Summary::default()),
            cancel: Cancel::default(),
        }
    }

    /// The summary of a result of which all pieces were received.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// When the query failed.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, ReadError>> {
        if self.is_finished {
            return None;
        }
        let message = loop {
            match self.messages.recv().await {
                Some(Message::Summary(summary)) => self.summary = Some(summary),
                message => break message,
            }
        };
        self.is_finished = !matches!(message, Some(Message::Piece(_)));
        match message {
            Some(Message::Piece(piece)) => Some(Ok(piece)),
            Some(Message::Ended(Err(error))) => Some(Err(error)),
            Some(Message::Ended(Ok(summary))) => {
                self.summary = Some(summary);
                None
            }
            // The thread ended without a message: it panicked.
            None | Some(Message::Summary(_)) => {
                Some(Err(ReadError::Output(io::ErrorKind::BrokenPipe.into())))
            }
        }
    }
}

impl Queries {
    /// Answers a question. Returns once the first bytes are known, so that an invalid question is
    /// an error here.
    ///
    /// # Errors
    /// When too many queries are running, a storage does not exist, the query is invalid, or
    /// nothing could be read.
    pub(crate) async fn answer(&self, question: Question) -> Result<Answer, AnswerError> {
        self.answer_if_there(question, None).await
    }

    /// Answers one of several questions that have one permit.
    ///
    /// # Errors
    /// As of [`Self::answer`].
    pub(crate) async fn answer_within(
        &self,
        question: Question,
        permit: &Permit,
    ) -> Result<Answer, AnswerError> {
        self.answer_if_there(question, Some(permit)).await
    }

    async fn answer_if_there(
        &self,
        question: Question,
        permit: Option<&Permit>,
    ) -> Result<Answer, AnswerError> {
        let storages = question.storages.clone();
        let answered = self.answer_or_rebuild(question, permit).await;
        match answered {
            Err(AnswerError::Read(error)) => Err(match self.deleted(&storages) {
                Some(deleted) => deleted.into(),
                None => error.into(),
            }),
            answered => answered,
        }
    }

    /// The error of the first storage that does not exist any more: its files cannot be read.
    pub(super) fn deleted(&self, storages: &[StorageId]) -> Option<StorageError> {
        let found = storages.iter().map(|id| self.engine.storages().get(*id));
        let mut errors = found.filter_map(Result::err);
        errors.find(|error| matches!(error, StorageError::StorageNotFound(_)))
    }

    async fn answer_or_rebuild(
        &self,
        question: Question,
        permit: Option<&Permit>,
    ) -> Result<Answer, AnswerError> {
        let reading = self.engine.reading();
        let answered = self.answer_once(question.clone(), permit).await;
        match answered {
            Err(AnswerError::Read(ReadError::SplitOutdated { .. })) => return answered,
            Err(AnswerError::Read(_)) => {}
            _ => return answered,
        }
        let mut is_rebuilt = false;
        for storage in &question.storages {
            is_rebuilt |= reading.rebuild_index(*storage).await;
        }
        if !is_rebuilt {
            return answered;
        }
        let mut again = question;
        // The end of the first attempt cancelled it.
        again.request.cancel = Cancel::default();
        self.answer_once(again, permit).await
    }

    /// The leaves that are read, and the number of derived streams that are omitted.
    async fn leaves(&self, question: &Question) -> Result<(Vec<StoredLeaf>, usize), AnswerError> {
        if let Some(split) = &question.split {
            // It was made without derived streams.
            let leaves = leaves_of(&self.engine, &question.storages, split).await?;
            return Ok((leaves, 0));
        }
        let mut leaves = Vec::new();
        for storage in &question.storages {
            leaves.extend(stored_leaves(&self.engine, *storage, Cause::Query).await?);
        }
        if question.derived {
            return Ok((leaves, 0));
        }
        Ok(without_derived(leaves))
    }

    async fn answer_once(
        &self,
        question: Question,
        permit: Option<&Permit>,
    ) -> Result<Answer, AnswerError> {
        let key = cache_key(&self.engine, &question)?;
        if let Some((storage, key)) = &key
            && let Some(first) = self.engine.query_cache().get(*storage, key).await?
        {
            self.metrics.queries.cached.inc();
            return Ok(Answer {
                first,
                summary: Some(Summary::default()),
                rest: Rows::empty(),
            });
        }
        let permit = permit.map_or_else(|| self.permit(), |permit| Ok(permit.clone()))?;
        let (leaves, derived) = self.leaves(&question).await?;
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        // From here on, dropping the receiver cancels the query.
        let mut rest = Rows {
            messages: receiver,
            is_finished: false,
            summary: None,
            cancel: question.request.cancel.clone(),
        };
        let task = QueryTask {
            question,
            derived,
            engine: self.engine.clone(),
            metrics: Arc::clone(&self.metrics),
            indexes: Arc::clone(&self.indexes),
            unreadable: Arc::clone(&self.unreadable),
            cache: self.filter_cache(),
            limits: self.limits,
            out: PieceWriter {
                sender: sender.clone(),
                piece: Vec::new(),
                has_sent: false,
                cacheable: key.is_some().then(Vec::new),
            },
            _permit: permit,
        };
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || task.run_to_end(leaves, &sender, key, &handle));
        let first = match rest.next().await {
            None => Bytes::new(),
            Some(piece) => piece?,
        };
        let summary = rest.summary.clone();
        Ok(Answer {
            first,
            summary,
            rest,
        })
    }
}

/// The key under which the result may be cached: only aggregations over one finalized storage are.
/// The key contains everything that the result depends on, except the packets.
fn cache_key(
    engine: &Engine,
    question: &Question,
) -> Result<Option<(StorageId, String)>, StorageError> {
    let [id] = question.storages.as_slice() else {
        return Ok(None);
    };
    let storage = engine.storages().get(*id)?;
    // A cached result does not know which times its trace would read in another unit.
    let is_checked = question.request.bare_times != BareTimes::default();
    let is_part = question.split.is_some();
    if storage.state != StorageState::Finalized || question.explain || is_checked || is_part {
        return Ok(None);
    }
    let result = match &question.result {
        ResultKind::Rows(_) => return Ok(None),
        ResultKind::Count => "count".to_owned(),
        ResultKind::Fields => format!("fields in {:?}", question.format),
        ResultKind::Groups(spec) => format!("{spec:?} in {:?}", question.format),
    };
    let request = &question.request;
    let query = request.query.as_ref().map_or("", |query| query.text());
    // Version 2 caches complete results only, version 3 only those with rows and without notes.
    // Since version 4, empty maps of OTLP are fields, and more results have notes.
    let key = format!(
        "4 {} {} {:?} {result} {:?} {:?} {:?} {query}",
        env!("CARGO_PKG_VERSION"),
        question.derived,
        storage.name,
        request.from,
        request.to,
        request.order,
    );
    Ok(Some((*id, key)))
}

/// A query on its thread.
struct QueryTask {
    engine: Engine,
    metrics: Arc<Metrics>,
    indexes: Arc<ChunkIndexes>,
    unreadable: Arc<UnreadableData>,
    question: Question,
    /// Number of derived streams that are omitted.
    derived: usize,
    cache: Arc<chunk_index::FilterCache>,
    limits: Limits,
    out: PieceWriter,
    _permit: Permit,
}

impl QueryTask {
    /// Runs the query, sends its outcome, and caches the result under the key, if there is one.
    fn run_to_end(
        self,
        leaves: Vec<StoredLeaf>,
        sender: &mpsc::Sender<Message>,
        key: Option<(StorageId, String)>,
        handle: &Handle,
    ) {
        let (engine, metrics) = (self.engine.clone(), Arc::clone(&self.metrics));
        let ended = self.run(leaves);
        if matches!(ended, Err(ReadError::Cancelled)) {
            metrics.queries.cancelled.inc();
        }
        let (ended, answer) = match ended {
            Ok((summary, answer)) => (Ok(summary), answer),
            Err(error) => (Err(error), None),
        };
        // The client may have disconnected.
        let _ = sender.blocking_send(Message::Ended(ended));
        if let Some(((storage, key), answer)) = key.zip(answer) {
            let store = engine.query_cache().put(storage, &key, &answer);
            let stored = handle.block_on(store);
            if let Err(error) = stored
                && !matches!(error, StorageError::StorageNotFound(_))
            {
                tracing::warn!(%storage, %error, "cannot cache the result of a query");
            }
        }
    }

    /// What is missing in the storages.
    ///
    /// # Errors
    /// When something is missing: a strict query does not skip it.
    fn missing(&self) -> Result<Vec<Skipped>, ReadError> {
        let found = match &self.question.split {
            Some(split) if !split.is_first => Vec::new(),
            _ => missing(&self.engine, &self.question.storages),
        };
        let first = found.first().and_then(|first| first.reasons.first());
        match first.filter(|_| self.question.request.strict) {
            Some(reason) => Err(ReadError::Incomplete {
                reason: reason.clone(),
            }),
            None => Ok(found),
        }
    }

    /// Returns the summary, and the complete result if it may be cached.
    fn run(mut self, leaves: Vec<StoredLeaf>) -> Result<(Summary, Option<Vec<u8>>), ReadError> {
        let _running = self.metrics.queries.began();
        let mut set = StorageSet::open(leaves, Some(Arc::clone(&self.cache)))?;
        if let Some(split) = &self.question.split {
            set.select(split)?;
        }
        set.drop_outdated(&self.question.request)?;
        self.request_missing_indexes(&set);
        let fields = self.question.fields();
        let sources = set.sources(&self.question.request, &fields)?;
        let unused: Vec<String> = sources.iter().filter_map(|s| s.unused_index()).collect();
        let missing = self.missing()?;
        let missing_count = missing.len();
        let mut report = self.write(&sources, missing)?;
        // What is missing cannot be read by any later query; the rest is new.
        let read = report.skipped.len().saturating_sub(missing_count);
        let unreadable = report.skipped.get(..read).unwrap_or_default();
        self.unreadable.found(unreadable);
        let summary = Summary::of(&report);
        report.notes.extend(derived_note(self.derived));
        self.metrics.queries.ended(&report);
        if !report.damaged.is_empty() {
            let indexes = &self.indexes;
            let storages = &self.question.storages;
            storages.iter().for_each(|id| indexes.rebuild(*id));
        }
        for fault in &summary.reasons {
            tracing::warn!(%fault, "a query skipped data that it cannot read; verify the storage");
        }
        for fault in unused.iter().chain(&report.damaged) {
            tracing::warn!(
                %fault,
                "a query read the data instead of an index; damaged indexes will be rebuilt"
            );
        }
        if let Some(line) = self.last_line(&report, &summary, &unused) {
            self.out.write(line.as_bytes()).map_err(ReadError::Output)?;
        }
        self.out.end(&summary)?;
        let is_found = report.matched > 0 || self.question.result == ResultKind::Count;
        let is_plain = report.is_complete() && is_found && report.rows > 0;
        let is_plain = is_plain && summary.notes.is_empty();
        let answer = self.out.cacheable.filter(|_| is_plain);
        Ok((summary, answer))
    }

    /// The line after the result: the explanation if it is requested, otherwise what was skipped
    /// and what must be known, in NDJSON. Browsers show no trailer fields to a page.
    fn last_line(&self, report: &Report, summary: &Summary, unused: &[String]) -> Option<String> {
        let Question { format, result, .. } = &self.question;
        let skipped = serde_json::json!(summary.reasons);
        if self.question.explain {
            let indexes = unused.iter().chain(&report.damaged);
            let notes = summary.reasons.iter().chain(indexes).chain(&report.notes);
            let notes = serde_json::json!(notes.collect::<Vec<_>>());
            let mark = match format {
                Format::Ndjson => "",
                _ => "# ",
            };
            return Some(format!(
                "{mark}{{\"explain\":{},\"notes\":{notes},\"skipped\":{skipped}}}\n",
                report.json()
            ));
        }
        let is_ndjson = match result {
            ResultKind::Rows(_) => *format == Format::Ndjson,
            ResultKind::Groups(_) | ResultKind::Fields => {
                matches!(format, Format::Ndjson | Format::Text)
            }
            // The count itself says it.
            ResultKind::Count => false,
        };
        let is_said =
            self.question.is_summarized && (!report.is_complete() || !summary.notes.is_empty());
        (is_ndjson && is_said).then(|| {
            let records = summary.skipped;
            let mut members = format!("\"skipped\":{skipped},\"skipped_records\":{records}");
            if !summary.notes.is_empty() {
                let notes = serde_json::json!(summary.notes);
                members.push_str(&format!(",\"notes\":{notes}"));
            }
            format!("{{\"summary\":{{{members}}}}}\n")
        })
    }

    /// Requests the missing indexes of finalized storages.
    fn request_missing_indexes(&self, set: &StorageSet) {
        let lacks = |(leaf, uncovered): &(&query_engine::Leaf, u64)| {
            leaf.checksum.is_some() && *uncovered > 0
        };
        for (leaf, _) in set.leaves().filter(lacks) {
            self.indexes.check(leaf.storage);
        }
    }

    /// The report of a question whose rows are not wanted, because too many events match.
    fn too_many(
        &self,
        sources: &[Box<dyn query_engine::ChunkSource>],
    ) -> Result<Option<Report>, ReadError> {
        let Some(most) = self.question.matched_max else {
            return Ok(None);
        };
        let (matched, report) = count(sources, &self.question.request, self.limits)?;
        Ok((matched > most).then_some(Report { rows: 0, ..report }))
    }

    fn write(
        &mut self,
        sources: &[Box<dyn query_engine::ChunkSource>],
        missing: Vec<Skipped>,
    ) -> Result<Report, ReadError> {
        // Rows say it themselves.
        self.question.request.missing.clone_from(&missing);
        let with_missing = |mut report: Report| {
            report.skipped.extend(missing);
            report
        };
        if let Some(report) = self.too_many(sources)? {
            return Ok(with_missing(report));
        }
        let Question {
            request,
            result,
            format,
            ..
        } = &self.question;
        let out = &mut self.out;
        let mut write = |bytes: &[u8]| out.write(bytes);
        match result {
            ResultKind::Rows(columns) => {
                let mut rows = format.rows();
                write_rows(
                    sources,
                    request,
                    columns,
                    &mut *rows,
                    self.limits,
                    &mut write,
                )
            }
            ResultKind::Count => {
                let (count, report) = count(sources, request, self.limits)?;
                let report = with_missing(report);
                let mut line = serde_json::json!({ "count": count });
                if !report.is_complete() {
                    let summary = Summary::of(&report);
                    line["skipped"] = serde_json::json!(summary.reasons);
                    line["skipped_records"] = serde_json::json!(summary.skipped);
                }
                write(format!("{line}\n").as_bytes()).map_err(ReadError::Output)?;
                Ok(report)
            }
            ResultKind::Fields | ResultKind::Groups(_) => {
                let (columns, (rows, report)) = match result {
                    ResultKind::Groups(spec) => {
                        let found = group_by(sources, request, spec, self.limits)?;
                        (spec.columns()?, found)
                    }
                    _ => {
                        let found = list_fields(sources, request, self.limits)?;
                        (field_columns(), found)
                    }
                };
                let mut report = with_missing(report);
                out.announce(&Summary::of(&report))?;
                let bytes_max = self.limits.row_group_bytes;
                let mut write = |bytes: &[u8]| out.write(bytes);
                let groups = (&*columns, &*rows);
                let notes = write_found(*format, groups, &report, bytes_max, &mut write)?;
                report.notes.extend(notes);
                Ok(report)
            }
        }
    }
}

/// Writes groups. Returns more notes than the report has.
fn write_found(
    format: Format,
    (columns, groups): (&[GroupColumn], &[GroupRow]),
    report: &Report,
    row_group_bytes: usize,
    write: &mut Out<'_>,
) -> Result<Vec<String>, ReadError> {
    let skipped: Vec<String> = report.skipped_reasons().map(str::to_owned).collect();
    let known = Known {
        skipped: &skipped,
        notes: &report.notes,
    };
    let written = write_groups(format, columns, groups, row_group_bytes, known, write);
    Ok(written?)
}

/// The columns of rows; all fields if none are named.
pub(crate) fn columns(fields: Vec<String>) -> Columns {
    if fields.is_empty() {
        Columns::All
    } else {
        Columns::Fields(fields)
    }
}
