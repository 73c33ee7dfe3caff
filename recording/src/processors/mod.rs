//! The processors, one file for each kind of them.

mod aggregator;
mod filters;
mod invocations;
mod saver;
mod spans;

#[cfg(test)]
mod tests;

use crate::ConfigError;
use crate::config::ProcessorConfig;
use crate::instant::time_range;
use crate::processor::{Processor, Row};

use aggregator::Aggregator;
pub(crate) use filters::PacketQuery;
use filters::{AgentFilter, QueryFilter, Sampler, TimeFrame};
use invocations::{Cloner, Extractor};
use saver::Saver;

/// Creates the processors of a checked chain.
pub(crate) fn make(chain: &[ProcessorConfig]) -> Result<Vec<Box<dyn Processor>>, ConfigError> {
    chain.iter().map(make_one).collect()
}

fn make_one(config: &ProcessorConfig) -> Result<Box<dyn Processor>, ConfigError> {
    let row = |inner: &[ProcessorConfig]| make(inner).map(Row);
    Ok(match config {
        ProcessorConfig::Saver { kinds } => Box::new(Saver::new(kinds.as_deref())),
        ProcessorConfig::InvocationCloner {} => Box::new(Cloner),
        ProcessorConfig::InvocationExtractor { processors } => {
            Box::new(Extractor::new(row(processors)?))
        }
        ProcessorConfig::Aggregator {
            period_seconds,
            attributes,
            groups_max,
        } => Box::new(Aggregator::new(*period_seconds, attributes, *groups_max)),
        ProcessorConfig::TimeFrame {
            from,
            to,
            processors,
        } => {
            let (from, to) = time_range(from.as_ref(), to.as_ref())?;
            Box::new(TimeFrame::new(from, to, row(processors)?))
        }
        ProcessorConfig::AgentFilter { agents, processors } => {
            Box::new(AgentFilter::new(agents, row(processors)?))
        }
        ProcessorConfig::Query {
            query,
            processors,
            is_exact,
        } => {
            let row = row(processors)?;
            Box::new(QueryFilter::new(query, *is_exact, row)?)
        }
        ProcessorConfig::Sampler { ratio, processors } => {
            Box::new(Sampler::new(*ratio, row(processors)?))
        }
    })
}
