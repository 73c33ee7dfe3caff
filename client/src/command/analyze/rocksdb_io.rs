//! Analysis of I/O traces.

use io_analysis::{IoAnalysis, IoQuestions, RocksdbIo, io_picture};
use trace_kinds::rocksdb::IoTrace;

use super::arguments::Analyze;
use super::export::IoExport;
use super::source::PacketSource;
use crate::command::{CommandError, Context, Exit};

pub(super) fn run(
    verb: &Analyze,
    context: &Context,
    mut source: PacketSource,
) -> Result<Exit, CommandError> {
    let mut analysis = IoAnalysis::new(questions(verb, "wal"));
    let mut accesses = RocksdbIo::default();
    let mut export = verb.export.as_ref().map(IoExport::create).transpose()?;
    while let Some(packet) = source.next_packet()? {
        let damaged = |error| CommandError::damage("packet", error);
        let mut trace = IoTrace::open(&packet).map_err(damaged)?;
        while let Some(record) = trace.next_record().map_err(damaged)? {
            let access = accesses.access(&record, trace.start_ns(&record));
            analysis.observe(&access);
            if let Some(export) = &mut export {
                export.put(&access)?;
            }
        }
    }
    conclude(verb, context, source, &analysis, export)
}

/// The requested analyses; user writes go to files of `user_class` unless an option names another.
pub(super) fn questions(verb: &Analyze, user_class: &str) -> IoQuestions {
    IoQuestions {
        slowest: verb.slowest,
        user_class: verb.user_class.as_deref().unwrap_or(user_class).to_owned(),
    }
}

/// Writes the results.
pub(super) fn conclude(
    verb: &Analyze,
    context: &Context,
    source: PacketSource,
    analysis: &IoAnalysis,
    export: Option<IoExport>,
) -> Result<Exit, CommandError> {
    if let Some(export) = export {
        export.finish(context)?;
    }
    let report = analysis.report();
    verb.write(report.files(), || io_picture(&report))?;
    context.print(&report, || {
        report.to_text(context.layout()).trim_end().to_owned()
    })?;
    Ok(source.finish(context))
}
