use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk_index::{Chunk, ChunkBuilder, ChunkSummary, Index, IndexConfig, TimeRange};
use query_language::{Aggregate, BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::{EachEvent, Origin};

use super::super::group_by;
use super::super::group_map::GROUP_BYTES_MAX;
use super::*;
use crate::source::{Counters, LocalFilter, Scratch, Task};
use crate::{Cancel, Evidence, Limits};

/// A source of which only the index can be used. Loading the index may be the moment at which a
/// client leaves.
struct Indexed {
    index: Arc<Index>,
    origin: Origin,
    leaving: Option<Cancel>,
}

impl Indexed {
    fn new(chunks: Vec<Vec<SummarizedGroup>>) -> Indexed {
        let config = IndexConfig::new([]);
        let mut index = Index::new(&config);
        let mut builder = ChunkBuilder::new(config, &mut FieldTable::new());
        for groups in chunks {
            let summary = ChunkSummary {
                statistics: ChunkStatistics {
                    groups,
                    ..ChunkStatistics::default()
                },
                ..builder.finish()
            };
            index.push(Chunk::default(), summary);
        }
        Indexed {
            index: Arc::new(index),
            origin: Origin {
                agent: Some("web".to_owned()),
                stream: Some("s".to_owned()),
                storage: Some("first".to_owned()),
                kind: Kind::Otlp.as_str(),
            },
            leaving: None,
        }
    }
}

impl ChunkSource for Indexed {
    fn place(&self) -> String {
        "an index".to_owned()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(BareUnit::NANOS)
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        if let Some(cancel) = &self.leaving {
            cancel.cancel();
        }
        Ok(Some(Evidence::Whole(Arc::clone(&self.index))))
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        LocalFilter {
            evaluate: filter.clone(),
            prune: filter.clone(),
        }
    }

    /// Chunks that are not answered are not read either.
    fn tasks(&self, _: Option<&[usize]>) -> Vec<Task> {
        Vec::new()
    }

    fn read(
        &self,
        _: &Task,
        _: &FieldTable,
        _: &mut Scratch,
        _: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        Ok(Counters::default())
    }
}

fn group(name: &str, events: u64, (first, last): (i64, i64)) -> SummarizedGroup {
    SummarizedGroup {
        cat: None,
        name: Some(name.as_bytes().into()),
        totals: Totals {
            events,
            timed: events,
            times: Some(TimeRange {
                first,
                last,
                end: last,
            }),
            ..Totals::default()
        },
    }
}

/// Chunks with a thousand names each, which no two chunks share.
fn many_names(chunks: usize, events: u64, times: (i64, i64)) -> Indexed {
    let names = |chunk: usize| (0..1_000).map(move |name| format!("{chunk}-{name}"));
    let groups = |chunk| {
        names(chunk)
            .map(|name| group(&name, events, times))
            .collect()
    };
    Indexed::new((0..chunks).map(groups).collect())
}

/// Numbers of events by the keys.
fn counts(every: Option<i64>, key: &str) -> GroupSpec {
    GroupSpec {
        every,
        aggregates: Aggregate::parse_list("count").unwrap(),
        estimate: every.is_some(),
        ..GroupSpec::by(key)
    }
}

fn spread(events: u64, times: (i64, i64), window: (Option<i64>, Option<i64>)) -> Vec<(i64, u64)> {
    spread_by(10, events, times, window)
}

fn spread_by(
    every: i64,
    events: u64,
    times: (i64, i64),
    window: (Option<i64>, Option<i64>),
) -> Vec<(i64, u64)> {
    let request = Request {
        from: window.0,
        to: window.1,
        ..Request::default()
    };
    let (budget, spec) = (Budget::default(), counts(Some(every), "name"));
    let mut summaries = Summaries::new(&spec, &request, &budget);
    let totals = group("read", events, times).totals;
    summaries.spread(0, 0, &totals, every).unwrap();
    let places = summaries.totals.into_iter();
    places
        .map(|((interval, _, _), totals)| (interval.unwrap(), totals.events))
        .collect()
}

#[test]
fn events_are_spread_evenly_and_none_is_lost() {
    let all = (None, None);
    let (first, last) = (i64::MIN, i64::MAX);
    for (events, times, window, expected) in [
        (1, (5, 5), all, vec![(0, 1)]),
        (2, (0, 19), all, vec![(0, 1), (10, 1)]),
        (3, (0, 19), all, vec![(0, 1), (10, 2)]),
        // Most intervals have none.
        (2, (0, 99), all, vec![(40, 1), (90, 1)]),
        (3, (5, 304), all, vec![(100, 1), (200, 1), (300, 1)]),
        (3, (5, 304), (Some(100), Some(201)), vec![(100, 1)]),
        (
            40,
            (-10, 29),
            all,
            vec![(-10, 10), (0, 10), (10, 10), (20, 10)],
        ),
        (40, (-10, 29), (Some(0), Some(20)), vec![(0, 10), (10, 10)]),
        (40, (-10, 29), (Some(5), Some(15)), vec![(0, 5), (10, 5)]),
        (40, (-10, 29), (Some(30), None), vec![]),
        (40, (-10, 29), (None, Some(-10)), vec![]),
        (40, (-10, 29), (Some(20), Some(10)), vec![]),
        // The first and the last time that there is.
        (7, (first, first + 5), all, vec![(first, 7)]),
        (1, (first, last), all, vec![(last - 7, 1)]),
        (2, (first, last), all, vec![(-10, 1), (last - 7, 1)]),
        (
            u64::MAX,
            (last, last),
            (Some(last), None),
            vec![(last - 7, u64::MAX)],
        ),
    ] {
        let found = spread(events, times, window);
        assert_eq!(found, expected, "{events} {times:?} {window:?}");
    }
}

#[test]
fn groups_by_agent_are_one_place_however_many_names_there_are() {
    let source = many_names(200, 3, (0, 5));
    let (budget, request) = (Budget::default(), Request::default());
    for (spec, places, labels) in [
        (counts(None, "agent"), 1, 1),
        (counts(None, "cat"), 1, 1),
        (counts(Some(10), "kind"), 1, 1),
        (counts(None, "name"), 200_000, 200_000),
    ] {
        let mut summaries = Summaries::new(&spec, &request, &budget);
        for chunk in 0..200 {
            let statistics = source.index.statistics(chunk).unwrap();
            assert!(summaries.take(0, statistics.clone()).unwrap());
        }
        let found = (summaries.totals.len(), summaries.labels.len());
        assert_eq!(found, (places, labels), "{spec:?}");
        assert_eq!(summaries.events(), 600_000, "{spec:?}");
    }
    let sources: Vec<Box<dyn ChunkSource>> = vec![Box::new(source)];
    let spec = counts(None, "agent");
    let (rows, report) = group_by(&sources, &request, &spec, Limits::default()).unwrap();
    assert_eq!((rows.len(), report.matched), (1, 600_000), "{rows:?}");
}

#[test]
fn summaries_have_the_budget_of_groups() {
    let statistics = ChunkStatistics {
        groups: vec![group("read", 2, (0, 15))],
        ..ChunkStatistics::default()
    };
    let request = Request::default();
    for (estimate, every) in [(false, None), (true, Some(10))] {
        let budget = Budget::default();
        let spec = counts(every, "name");
        let mut summaries = Summaries::new(&spec, &request, &budget);
        summaries
            .estimates
            .iter_mut()
            .for_each(|made| made.exact_left = 0);
        let add = |summaries: &mut Summaries<'_>| {
            if estimate {
                summaries.estimate(0, statistics.clone())
            } else {
                summaries.take(0, statistics.clone())
            }
        };
        assert!(add(&mut summaries).unwrap());
        budget.take(GROUP_BYTES_MAX).unwrap();
        // What is known takes no more memory.
        assert!(add(&mut summaries).unwrap());
        let mut others = Summaries::new(&spec, &request, &budget);
        others
            .estimates
            .iter_mut()
            .for_each(|made| made.exact_left = 0);
        let error = add(&mut others).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 groups by"), "{error}");
    }
}

#[test]
fn distributions_of_durations_count_as_memory() {
    let spec = GroupSpec::by("name");
    let (budget, request) = (Budget::default(), Request::default());
    let mut summaries = Summaries::new(&spec, &request, &budget);
    let mut long = group("read", 2, (0, 15));
    long.totals.durations.add(1);
    let take = |summaries: &mut Summaries<'_>, group: &SummarizedGroup| {
        let groups = vec![group.clone()];
        summaries.take(
            0,
            ChunkStatistics {
                groups,
                ..ChunkStatistics::default()
            },
        )
    };
    assert!(take(&mut summaries, &long).unwrap());
    budget.take(GROUP_BYTES_MAX).unwrap();
    assert!(take(&mut summaries, &long).unwrap());
    long.totals.durations.add(i64::MAX);
    assert!(take(&mut summaries, &long).is_err());
}

#[test]
fn a_cancelled_request_ends_inside_a_source() {
    let mut source = many_names(2, 1, (0, 5));
    let request = Request::default();
    source.leaving = Some(request.cancel.clone());
    let sources: Vec<Box<dyn ChunkSource>> = vec![Box::new(source)];
    for spec in [counts(None, "agent"), counts(Some(1), "name")] {
        let ended = group_by(&sources, &request, &spec, Limits::default());
        assert!(matches!(ended, Err(ReadError::Cancelled)), "{ended:?}");
    }
}

/// Walking all intervals of all groups takes minutes.
#[test]
fn only_intervals_with_events_in_the_window_are_visited() {
    let sources: Vec<Box<dyn ChunkSource>> = vec![Box::new(many_names(50, 2, (0, 65_000 * 10)))];
    let request = Request {
        from: Some(40),
        to: Some(50),
        ..Request::default()
    };
    for window in [request, Request::default()] {
        let begin = Instant::now();
        let spec = counts(Some(10), "agent");
        let (_, report) = group_by(&sources, &window, &spec, Limits::default()).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "{report:?}");
        assert_eq!(report.read, EXACT_CHUNKS_MAX, "{report:?}");
    }
}

#[test]
fn the_note_says_whether_the_sum_is_exact() {
    // 30 chunks, one after the other.
    let chunks = (0..30).map(|chunk| vec![group("read", 100, (chunk * 100, chunk * 100 + 99))]);
    let sources: Vec<Box<dyn ChunkSource>> = vec![Box::new(Indexed::new(chunks.collect()))];
    for ((from, to), expected) in [
        ((None, None), Some("")),
        ((Some(100), Some(2_000)), Some("")),
        ((Some(120), Some(2_000)), Some("")),
        ((Some(100), Some(1_950)), Some("; 1 of these chunks")),
        ((Some(-5), Some(1_950)), Some("; 1 of these chunks")),
        ((Some(120), Some(180)), None),
    ] {
        let request = Request {
            from,
            to,
            ..Request::default()
        };
        let spec = counts(Some(10), "name");
        let (_, report) = group_by(&sources, &request, &spec, Limits::default()).unwrap();
        let note = report.notes.first().map(|note| {
            let (_, sum) = note.split_once("time of their events").unwrap();
            sum.to_owned()
        });
        match (&note, expected) {
            (Some(note), Some(expected)) => assert!(
                note.starts_with(expected) && note.is_empty() == expected.is_empty(),
                "{from:?}..{to:?}: {note}"
            ),
            (note, expected) => assert_eq!(note.as_deref(), expected, "{from:?}..{to:?}"),
        }
        let is_estimate = expected.is_some_and(|expected| !expected.is_empty());
        assert_eq!(report.is_matched_estimated, is_estimate, "{from:?}..{to:?}");
    }
}

#[test]
fn estimates_of_any_numbers_do_not_overflow() {
    let all = (i64::MIN, i64::MAX);
    for every in [1 << 50, i64::MAX] {
        for window in [(None, None), (Some(i64::MIN + 1), Some(i64::MAX))] {
            let found = spread_by(every, u64::MAX, all, window);
            let sum: u128 = found.iter().map(|(_, events)| u128::from(*events)).sum();
            let lost = u128::from(u64::MAX) - sum;
            assert!(
                lost <= 2 && found.len() < 70_000,
                "{every} {window:?} {lost}"
            );
        }
    }
}
