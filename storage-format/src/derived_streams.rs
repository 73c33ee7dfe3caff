//! Streams that processors derive from others: clones, spans, exceptions, aggregates.
//!
//! A derived stream is named after its source. It repeats events of the source, so whoever reads
//! both counts them twice.

use storage_format::Kind;

/// The endings of the names of derived streams.
pub const DERIVED_ENDINGS: [&str; 4] = [".clones", ".spans", ".exceptions", ".aggregates"];

/// Longest name of a stream; that of a longer source is cut.
pub const STREAM_NAME_MAX: usize = 128;

/// Whether `stream` is derived from one of the streams `others` of its agent. Without its source it
/// repeats nothing: a copy may have derived streams alone, and other streams may end like them.
pub fn is_derived<'s>(kind: Kind, stream: &str, others: impl IntoIterator<Item = &'s str>) -> bool {
    let mut endings = DERIVED_ENDINGS.iter();
    let Some(source) = endings.find_map(|ending| stream.strip_suffix(ending)) else {
        return false;
    };
    let is_cut = stream.len() == STREAM_NAME_MAX;
    let is_source = |other: &str| other == source || (is_cut && other.starts_with(source));
    kind == Kind::Otlp
        && others
            .into_iter()
            .any(|other| other != stream && is_source(other))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(
                is_derived(kind, stream, [other]),
                expected,
                "{stream} {other}"
            );
        }
        assert!(!is_derived(Kind::Otlp, "traces.clones", []));
    }
}
