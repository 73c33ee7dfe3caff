//! Analysis of block cache traces.

use io_analysis::{CacheAnalysis, ResultFile, cache_picture};
use trace_kinds::rocksdb::BlockCacheTrace;

use super::arguments::Analyze;
use super::export::CacheExport;
use super::source::PacketSource;
use crate::command::{CommandError, Context, Exit};

pub(super) fn run(
    verb: &Analyze,
    context: &Context,
    mut source: PacketSource,
) -> Result<Exit, CommandError> {
    let mut analysis = CacheAnalysis::new(verb.cache.questions()?);
    let mut export = verb.export.as_ref().map(CacheExport::create).transpose()?;
    while let Some(packet) = source.next_packet()? {
        let damaged = |error| CommandError::damage("packet", error);
        let mut trace = BlockCacheTrace::open(&packet).map_err(damaged)?;
        while let Some(record) = trace.next_record().map_err(damaged)? {
            analysis.observe(&record);
            if let Some(export) = &mut export {
                export.put(&record)?;
            }
        }
    }
    conclude(verb, context, source, &analysis, export)
}

/// Writes the results.
pub(super) fn conclude(
    verb: &Analyze,
    context: &Context,
    source: PacketSource,
    analysis: &CacheAnalysis,
    export: Option<CacheExport>,
) -> Result<Exit, CommandError> {
    if let Some(export) = export {
        export.finish(context)?;
    }
    let report = analysis.report();
    let files = match &verb.out {
        Some(_) => {
            let (mut files, refused) = analysis.files();
            for error in refused {
                context.note(format!("skipped: {error}"));
            }
            let text = report.rocksdb_summary();
            files.push(ResultFile {
                name: "summary.txt".to_owned(),
                text,
            });
            files
        }
        None => Vec::new(),
    };
    verb.write(files, || cache_picture(&report))?;
    context.print(&report, || {
        report.to_text(context.layout()).trim_end().to_owned()
    })?;
    Ok(source.finish(context))
}
