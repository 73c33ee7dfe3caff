//! The configuration of processors in JSON, and its checks.

use query_language::{BareUnit, Query};
use serde::{Deserialize, Serialize};
use storage_format::{AgentId, Kind};

use crate::ConfigError;
use crate::instant::{Instant, time_range};

/// Depth of nested processors.
pub const DEPTH_MAX: usize = 8;
/// Processors of one chain, including nested ones.
pub const PROCESSORS_MAX: usize = 64;
/// Open groups of an aggregator by default, and the maximum.
pub const GROUPS_DEFAULT: u32 = 10_000;
/// See [`GROUPS_DEFAULT`].
pub const GROUPS_MAX: u32 = 1_000_000;
/// Attributes by which an aggregator may group.
pub const ATTRIBUTES_MAX: usize = 16;

/// One processor of a chain. `docs/recording.md` describes what each does with which item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProcessorConfig {
    /// Writes packets as they were sent; in a chain of an extractor spans and exceptions.
    Saver {
        /// Kinds of packets, `span` or `exception`; all by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kinds: Option<Vec<String>>,
    },
    /// Writes the root of each invocation, without its children.
    InvocationCloner {},
    /// Passes the descendants of each root, and the exceptions of all its spans, to its chain.
    InvocationExtractor {
        /// The chain; a saver by default.
        #[serde(default = "saver_alone")]
        processors: Vec<ProcessorConfig>,
    },
    /// Writes totals of groups of spans, or events of other kinds, for each period.
    Aggregator {
        /// Length of the period.
        #[serde(default = "period_default")]
        period_seconds: u32,
        /// Fields that groups are formed by, in addition to agent and name.
        #[serde(default)]
        attributes: Vec<String>,
        /// Open groups; beyond, the oldest is written.
        #[serde(default = "groups_default")]
        groups_max: u32,
    },
    /// Passes items in a time range.
    TimeFrame {
        /// Begin of the range: RFC 3339, or ns since the epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Instant>,
        /// End of the range, exclusive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Instant>,
        /// The chain for what passes.
        processors: Vec<ProcessorConfig>,
    },
    /// Passes items of these agents.
    AgentFilter {
        /// The agents.
        agents: Vec<AgentId>,
        /// The chain for what passes.
        processors: Vec<ProcessorConfig>,
    },
    /// Passes items that match an expression of the query language.
    Query {
        /// The expression.
        query: String,
        /// The chain for what passes.
        processors: Vec<ProcessorConfig>,
        /// Whether only matches pass: a copy knows by itself which declarations they need.
        #[serde(skip)]
        is_exact: bool,
    },
    /// Passes the spans of a sample of all traces.
    Sampler {
        /// The fraction, from 0 to 1.
        ratio: f64,
        /// The chain for what passes.
        processors: Vec<ProcessorConfig>,
    },
}

fn saver_alone() -> Vec<ProcessorConfig> {
    vec![ProcessorConfig::Saver { kinds: None }]
}

fn period_default() -> u32 {
    5
}

fn groups_default() -> u32 {
    GROUPS_DEFAULT
}

/// The chain of a recording without processors: saves everything, clones and extracts invocations,
/// and aggregates.
#[must_use]
pub fn default_chain() -> Vec<ProcessorConfig> {
    vec![
        ProcessorConfig::Saver { kinds: None },
        ProcessorConfig::InvocationCloner {},
        ProcessorConfig::InvocationExtractor {
            processors: saver_alone(),
        },
        ProcessorConfig::Aggregator {
            period_seconds: period_default(),
            attributes: Vec::new(),
            groups_max: GROUPS_DEFAULT,
        },
    ]
}

/// The chain of a copy: the query, then the processors.
pub(crate) fn copy_chain(
    query: Option<&String>,
    processors: &[ProcessorConfig],
) -> Vec<ProcessorConfig> {
    let processors = processors.to_vec();
    match query.cloned() {
        Some(query) => vec![ProcessorConfig::Query {
            query,
            processors,
            is_exact: true,
        }],
        None => processors,
    }
}

/// Checks a chain.
///
/// # Errors
/// The first thing that is wrong, and what would be right.
pub fn check_chain(chain: &[ProcessorConfig]) -> Result<(), ConfigError> {
    let mut count = 0;
    check_at(chain, 1, &mut count)
}

fn check_at(chain: &[ProcessorConfig], depth: usize, count: &mut usize) -> Result<(), ConfigError> {
    let refuse = |what, problem: &str| Err(ConfigError::new(what, problem.to_owned()));
    if chain.is_empty() {
        return refuse("processors", "a chain has at least one");
    }
    if depth > DEPTH_MAX {
        return refuse("processors", "they nest deeper than 8");
    }
    *count += chain.len();
    if *count > PROCESSORS_MAX {
        return refuse("processors", "they are more than 64, nested ones included");
    }
    for processor in chain {
        check_one(processor)?;
        if let Some(inner) = processor.inner() {
            check_at(inner, depth + 1, count)?;
        }
    }
    Ok(())
}

fn check_one(processor: &ProcessorConfig) -> Result<(), ConfigError> {
    let refuse = |what, problem: String| Err(ConfigError::new(what, problem));
    match processor {
        ProcessorConfig::Saver { kinds } => {
            let known = |kind: &String| {
                kind.parse::<Kind>().is_ok() || matches!(&**kind, "span" | "exception")
            };
            match kinds.iter().flatten().find(|kind| !known(kind)) {
                Some(kind) => refuse(
                    "kinds of saver",
                    format!("{kind:?} is neither a kind of packets nor `span` or `exception`"),
                ),
                None => Ok(()),
            }
        }
        ProcessorConfig::Aggregator {
            period_seconds,
            attributes,
            groups_max,
        } => {
            if *period_seconds == 0 {
                return refuse("period_seconds", "a period has at least 1 s".to_owned());
            }
            if !(1..=GROUPS_MAX).contains(groups_max) {
                return refuse("groups_max", format!("must be from 1 to {GROUPS_MAX}"));
            }
            match attributes.len() {
                0..=ATTRIBUTES_MAX => Ok(()),
                _ => refuse("attributes", format!("are more than {ATTRIBUTES_MAX}")),
            }
        }
        ProcessorConfig::TimeFrame { from, to, .. } => {
            let (from, to) = time_range(from.as_ref(), to.as_ref())?;
            match from.zip(to) {
                Some((from, to)) if from >= to => {
                    refuse("time_frame", "`from` is not before `to`".to_owned())
                }
                _ => Ok(()),
            }
        }
        ProcessorConfig::AgentFilter { agents, .. } if agents.is_empty() => {
            refuse("agents", "an agent_filter names at least one".to_owned())
        }
        ProcessorConfig::Query { query, .. } => parse_query(query).map(drop),
        ProcessorConfig::Sampler { ratio, .. } if !(0.0..=1.0).contains(ratio) => {
            refuse("ratio", "must be from 0 to 1".to_owned())
        }
        _ => Ok(()),
    }
}

/// Parses a query that must be valid for every kind of packets.
///
/// # Errors
/// When it is invalid, or a literal does not suit its field.
pub fn parse_query(text: &str) -> Result<Query, ConfigError> {
    let wrong = |error: query_language::QueryError| ConfigError::new("query", error.to_string());
    let query = Query::parse(text).map_err(wrong)?;
    query.bind(BareUnit::NANOS).map_err(wrong)?;
    Ok(query)
}

impl ProcessorConfig {
    /// The nested chain of the processor, if it has one.
    #[must_use]
    pub fn inner(&self) -> Option<&[ProcessorConfig]> {
        match self {
            Self::Saver { .. } | Self::InvocationCloner {} | Self::Aggregator { .. } => None,
            Self::InvocationExtractor { processors }
            | Self::TimeFrame { processors, .. }
            | Self::AgentFilter { processors, .. }
            | Self::Query { processors, .. }
            | Self::Sampler { processors, .. } => Some(processors),
        }
    }

    /// Whether the processor, or one nested in it, needs invocations.
    pub(crate) fn needs_invocations(&self) -> bool {
        match self {
            Self::InvocationCloner {} | Self::InvocationExtractor { .. } => true,
            Self::Aggregator { .. } => true,
            other => other
                .inner()
                .is_some_and(|inner| inner.iter().any(Self::needs_invocations)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<ProcessorConfig>, String> {
        let chain: Vec<ProcessorConfig> =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        check_chain(&chain).map_err(|error| error.to_string())?;
        Ok(chain)
    }

    #[test]
    fn valid_chains_survive_a_round_trip() {
        for json in [
            r#"[{"type":"saver"}]"#,
            r#"[{"type":"saver","kinds":["otlp","ctf"]}]"#,
            r#"[{"type":"invocation_cloner"},{"type":"invocation_extractor"}]"#,
            r#"[{"type":"aggregator","period_seconds":1,"attributes":["http.route"]}]"#,
            r#"[{"type":"time_frame","from":"2026-01-01T00:00:00Z","processors":[{"type":"saver"}]}]"#,
            r#"[{"type":"time_frame","from":5,"to":6,"processors":[{"type":"saver"}]}]"#,
            r#"[{"type":"agent_filter","agents":["a"],"processors":[{"type":"saver"}]}]"#,
            r#"[{"type":"query","query":"dur > 5ms","processors":[{"type":"invocation_cloner"}]}]"#,
            r#"[{"type":"sampler","ratio":0.5,"processors":[{"type":"saver"}]}]"#,
        ] {
            let chain = read(json).unwrap();
            let shown = serde_json::to_string(&chain).unwrap();
            assert_eq!(read(&shown).unwrap(), chain, "{shown}");
        }
        assert_eq!(check_chain(&default_chain()), Ok(()));
    }

    #[test]
    fn invalid_chains_are_refused() {
        let check = |json: &str, reason: &str| {
            let refused = read(json).unwrap_err();
            assert!(refused.contains(reason), "{json}: {refused}");
        };
        check("[]", "at least one");
        check(r#"[{"type":"magic"}]"#, "unknown variant");
        check(r#"[{"type":"saver","more":1}]"#, "unknown field");
        check(r#"[{"type":"saver","kinds":["bread"]}]"#, "bread");
        check(
            r#"[{"type":"aggregator","period_seconds":0}]"#,
            "at least 1 s",
        );
        check(r#"[{"type":"aggregator","groups_max":0}]"#, "groups_max");
        check(
            r#"[{"type":"sampler","ratio":2,"processors":[{"type":"saver"}]}]"#,
            "ratio",
        );
        check(
            r#"[{"type":"sampler","ratio":1,"processors":[]}]"#,
            "at least one",
        );
        check(
            r#"[{"type":"query","query":"dur >","processors":[{"type":"saver"}]}]"#,
            "query",
        );
        check(
            r#"[{"type":"query","query":"name == 5ms","processors":[{"type":"saver"}]}]"#,
            "query",
        );
        check(
            r#"[{"type":"time_frame","from":6,"to":6,"processors":[{"type":"saver"}]}]"#,
            "before",
        );
        check(
            r#"[{"type":"time_frame","from":"noon","processors":[{"type":"saver"}]}]"#,
            "noon",
        );
        let deep = (0..9).fold(r#"{"type":"saver"}"#.to_owned(), |inner, _| {
            format!(r#"{{"type":"sampler","ratio":1,"processors":[{inner}]}}"#)
        });
        check(&format!("[{deep}]"), "deeper");
        let many = vec![r#"{"type":"saver"}"#; 65].join(",");
        check(&format!("[{many}]"), "more than 64");
    }
}
