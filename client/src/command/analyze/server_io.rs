//! Analysis of I/O traces of a server.

use std::ops::ControlFlow;

use io_analysis::{CacheAnalysis, CacheLookups, IoAnalysis, server_access};
use trace_kinds::DecodeError;
use trace_kinds::io_trace::{IoTraceRecord, Item, each_item};

use super::arguments::Analyze;
use super::export::{CacheExport, IoExport};
use super::source::PacketSource;
use super::{block_cache, rocksdb_io};
use crate::command::{CommandError, Context, Exit};

pub(super) fn run(
    verb: &Analyze,
    context: &Context,
    mut source: PacketSource,
) -> Result<Exit, CommandError> {
    let mut analysis = IoAnalysis::new(rocksdb_io::questions(verb, "data"));
    let mut export = verb.export.as_ref().map(IoExport::create).transpose()?;
    each_record(context, &mut source, |record| {
        let access = server_access(record);
        analysis.observe(&access);
        export.as_mut().map_or(Ok(()), |export| export.put(&access))
    })?;
    rocksdb_io::conclude(verb, context, source, &analysis, export)
}

/// Analyzes the cache lookups of the trace as a block cache trace.
pub(super) fn run_lookups(
    verb: &Analyze,
    context: &Context,
    mut source: PacketSource,
) -> Result<Exit, CommandError> {
    let mut analysis = CacheAnalysis::new(verb.cache.questions()?);
    let mut export = verb.export.as_ref().map(CacheExport::create).transpose()?;
    let mut lookups = CacheLookups::new(verb.page_bytes, verb.blocks.clone());
    each_record(context, &mut source, |record| {
        lookups.each(record, |record| {
            analysis.observe(record);
            export.as_mut().map_or(Ok(()), |export| export.put(record))
        })
    })?;
    block_cache::conclude(verb, context, source, &analysis, export)
}

/// Calls `each` with every operation. Those of a packet that a crash cut off are analyzed, too.
fn each_record(
    context: &Context,
    source: &mut PacketSource,
    mut each: impl FnMut(&IoTraceRecord<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    while let Some(packet) = source.next_packet()? {
        let mut failed = Ok(());
        let read = each_item(&packet, |item| match item {
            Item::Record(record) => {
                failed = each(&record);
                match failed {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            }
            Item::End { dropped, .. } if dropped > 0 => {
                context.note(format!(
                    "the server dropped {dropped} operations while it recorded the trace"
                ));
                ControlFlow::Continue(())
            }
            Item::Begin | Item::End { .. } => ControlFlow::Continue(()),
        });
        failed?;
        match read {
            Ok(()) => {}
            Err(error @ DecodeError::Truncated { .. }) => source.report_torn(context, &error),
            Err(error) => return Err(CommandError::damage("packet", error)),
        }
    }
    Ok(())
}
