//! Streams that processors derive from others: clones, spans, exceptions, aggregates.
//!
//! A derived stream is named after its source. It repeats events of the source, so whoever reads
//! both counts them twice. Such names are reserved for what recordings write: packets from outside
//! are refused in a stream of such a name, because nobody could tell what it repeats.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound::{Included, Unbounded},
};

use crate::{AgentId, Kind, StreamId, data_file::LeafPath};

/// The endings of the names of derived streams.
pub const DERIVED_ENDINGS: [&str; 4] = [".clones", ".spans", ".exceptions", ".aggregates"];

/// Longest name of a stream; that of a longer source is cut.
pub const STREAM_NAME_MAX: usize = 128;

/// Whether a stream from outside is refused, because its name is one of derived streams.
#[must_use]
pub fn is_reserved(kind: Kind, stream: &str) -> bool {
    kind == Kind::Otlp
        && DERIVED_ENDINGS
            .iter()
            .any(|ending| stream.ends_with(ending))
}

/// Whether `stream` is derived from another stream of its agent; `from` gives the names of its
/// streams in their order, beginning with the first that is not before a name. Without its source
/// it repeats nothing: a copy may have derived streams alone, and other streams may end like them.
pub fn is_derived<'s, I: Iterator<Item = &'s str>>(
    kind: Kind,
    stream: &str,
    from: impl FnOnce(&str) -> I,
) -> bool {
    let mut endings = DERIVED_ENDINGS.iter();
    let source = endings.find_map(|ending| stream.strip_suffix(ending));
    let Some(source) = source.filter(|_| kind == Kind::Otlp) else {
        return false;
    };
    let mut names = from(source);
    if stream.len() < STREAM_NAME_MAX {
        return names.next() == Some(source);
    }
    // Its source may have a longer name that begins like this.
    let mut names = names.take_while(|name| name.starts_with(source));
    names.any(|name| name != stream)
}

/// The names of the streams of a storage.
#[derive(Debug, Default)]
pub struct StreamNames(HashMap<AgentId, BTreeSet<StreamId>>);

impl StreamNames {
    /// Adds a stream.
    pub fn add(&mut self, agent: &AgentId, stream: &StreamId) {
        if !self.0.contains_key(agent) {
            self.0.insert(agent.clone(), BTreeSet::new());
        }
        if let Some(of_agent) = self.0.get_mut(agent)
            && !of_agent.contains(stream)
        {
            of_agent.insert(stream.clone());
        }
    }

    /// Whether a stream is derived from one of these.
    #[must_use]
    pub fn has_source_of(&self, kind: Kind, agent: &AgentId, stream: &StreamId) -> bool {
        let of_agent = self.0.get(agent);
        is_derived(kind, stream.as_str(), |source| {
            let from = (Included(source), Unbounded);
            let names = of_agent.map(|names| names.range::<str, _>(from));
            names.into_iter().flatten().map(StreamId::as_str)
        })
    }
}

impl<'p> FromIterator<&'p LeafPath> for StreamNames {
    fn from_iter<I: IntoIterator<Item = &'p LeafPath>>(paths: I) -> Self {
        let mut names = Self::default();
        for LeafPath { agent, stream, .. } in paths {
            names.add(agent, stream);
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_derived_from(kind: Kind, stream: &str, others: &[&str]) -> bool {
        let path = |agent: &str, stream: &str| LeafPath {
            agent: agent.parse().unwrap(),
            stream: stream.parse().unwrap(),
            kind,
            bucket: None,
        };
        let stream = path("a", stream);
        let mut paths: Vec<LeafPath> = others.iter().map(|other| path("a", other)).collect();
        paths.extend([stream.clone(), path("b", "traces")]);
        let names: StreamNames = paths.iter().collect();
        names.has_source_of(kind, &stream.agent, &stream.stream)
    }

    #[test]
    fn names_of_derived_streams_are_reserved() {
        for (kind, stream, expected) in [
            (Kind::Otlp, "traces.spans", true),
            (Kind::Otlp, ".clones", true),
            (Kind::Otlp, "traces.spans.clones", true),
            (Kind::Otlp, "traces.spans.otlp", false),
            (Kind::Otlp, "spans", false),
            (Kind::Otlp, "traces", false),
            (Kind::Chrome, "traces.spans", false),
        ] {
            assert_eq!(is_reserved(kind, stream), expected, "{kind} {stream}");
        }
    }

    #[test]
    fn a_stream_is_derived_if_it_is_named_after_another_one() {
        let long = "x".repeat(STREAM_NAME_MAX);
        let cut = format!("{}.clones", &long[..STREAM_NAME_MAX - ".clones".len()]);
        for (kind, stream, other, expected) in [
            (Kind::Otlp, "traces.clones", "traces", true),
            (Kind::Otlp, "traces.aggregates", "traces", true),
            (Kind::Otlp, "traces.clones.spans", "traces.clones", true),
            (Kind::Otlp, "traces", "traces", false),
            (Kind::Otlp, "traces.clones", "trace", false),
            (Kind::Otlp, "traces.clones", "traces.clones", false),
            (Kind::Otlp, "my.other", "my", false),
            (Kind::Ctf, "traces.clones", "traces", false),
            (Kind::Otlp, &cut, &long, true),
            (Kind::Otlp, &cut, "y", false),
            (Kind::Otlp, &cut, "z", false),
        ] {
            let found = is_derived_from(kind, stream, &[other]);
            assert_eq!(found, expected, "{stream} {other}");
        }
        assert!(!is_derived_from(Kind::Otlp, "traces.clones", &[]));
        let others = ["trace", "traces.a", "tracesx"];
        assert!(!is_derived_from(Kind::Otlp, "traces.clones", &others));
    }
}
