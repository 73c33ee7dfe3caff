//! `tracehold analyze`: analysis of I/O and block cache traces.

mod arguments;
mod block_cache;
mod export;
mod options;
mod rocksdb_io;
mod server_io;
mod source;

use super::output_path::check_output;
use super::{CommandError, Context, Exit};
pub(super) use arguments::Analyze;
use export::ExportTarget;
pub(super) use source::stored;
use source::{Input, PacketSource, TraceType};

impl Analyze {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let outputs = self.export.iter().map(ExportTarget::path);
        for output in outputs.chain(self.plot.as_deref()) {
            check_output(output, &self.paths)?;
        }
        let place = match &self.storage {
            Some(storage) => Input::Storage {
                storage,
                agent: self.agent.as_deref(),
                stream: self.stream.as_deref(),
            },
            None => Input::Files(&self.paths),
        };
        let mut source = PacketSource::open(context, &place)?;
        match source.kind()? {
            Some(TraceType::BlockCache) => block_cache::run(&self, context, source),
            Some(TraceType::ServerIo) if self.lookups => {
                server_io::run_lookups(&self, context, source)
            }
            Some(_) if self.lookups => Err(CommandError::usage(
                "--lookups requires an I/O trace of a server",
            )),
            Some(TraceType::ServerIo) => server_io::run(&self, context, source),
            Some(TraceType::RocksdbIo) => rocksdb_io::run(&self, context, source),
            None => {
                context.note("the trace has no records");
                source.finish(context);
                Ok(Exit::NoMatchOrDamage)
            }
        }
    }
}
