//! Options that have the names and meanings of those of `babeltrace2`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ctf_folder::{ClockText, DetailsOptions, FieldChoice, NameChoice, TextStyle};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use query_language::time::{IntegerUnit, Time, TimeError, TimeErrorKind, parse_time};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A time, and whether it was written without an offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenTime {
    time: Time,
    is_civil: bool,
}

impl WrittenTime {
    /// The instant, with the day of `reference` for a time of day.
    pub(super) fn instant(self, reference: Option<i64>, local: bool) -> Result<i64, TimeErrorKind> {
        let is_local = local && self.is_civil;
        let instant = match (self.time, reference) {
            (Time::Instant(instant), _) => instant,
            (time @ Time::TimeOfDay(_), Some(reference)) => {
                let seconds = reference.div_euclid(NANOS_PER_SECOND);
                let shift = if is_local { local_offset(seconds) } else { 0 };
                time.on_day_of(reference.saturating_add(shift * NANOS_PER_SECOND))?
            }
            (Time::TimeOfDay(_), None) => return Err(TimeErrorKind::NoDate),
        };
        if is_local {
            return utc_of_local(instant).ok_or(TimeErrorKind::OutOfRange);
        }
        Ok(instant)
    }
}

/// The instant at which clocks in the local time zone show what clocks in UTC show at `nanos`.
fn utc_of_local(nanos: i64) -> Option<i64> {
    let shown = Timestamp::from_nanosecond(i128::from(nanos)).ok()?;
    let shown = shown.to_zoned(TimeZone::UTC).datetime();
    let instant = shown.to_zoned(TimeZone::system()).ok()?.timestamp();
    i64::try_from(instant.as_nanosecond()).ok()
}

/// The offset of the local time from UTC at an instant, all in seconds.
fn local_offset(seconds: i64) -> i64 {
    let instant = Timestamp::from_second(seconds).unwrap_or_default();
    let offset = TimeZone::system().to_offset(instant);
    i64::from(offset.seconds())
}

/// True for a date, a date and time or a time of day without an offset.
fn is_civil(text: &str) -> bool {
    let text = text.trim();
    let has_date = text.as_bytes().get(4) == Some(&b'-');
    let rest = text.get(10..).unwrap_or_default();
    let has_offset = rest.ends_with(['Z', 'z']) || rest.contains(['+', '-']);
    (has_date && !has_offset) || (!has_date && text.contains(':'))
}

fn written_time(text: &str) -> Result<WrittenTime, TimeError> {
    Ok(WrittenTime {
        time: parse_time(text, IntegerUnit::Seconds)?,
        is_civil: is_civil(text),
    })
}

/// `BEGIN,END` or `[BEGIN,END]`.
fn written_range(text: &str) -> Result<(WrittenTime, WrittenTime), String> {
    let text = text.trim();
    let within = text
        .strip_prefix('[')
        .map_or(Some(text), |rest| rest.strip_suffix(']'));
    let Some((begin, end)) = within.and_then(|within| within.split_once(',')) else {
        return Err("expected BEGIN,END or [BEGIN,END]".to_owned());
    };
    let written = |text: &str| written_time(text).map_err(|error| error.to_string());
    Ok((written(begin)?, written(end)?))
}

/// A parameter of the text with details.
fn written_parameter(text: &str) -> Result<(String, bool), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("expected NAME=yes or NAME=no".to_owned());
    };
    let value = match value.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "1" => true,
        "no" | "false" | "0" => false,
        _ => return Err(format!("expected yes or no for {name}")),
    };
    let name = name.trim().to_owned();
    if DetailsOptions::default().set(&name, value) {
        Ok((name, value))
    } else {
        Err(format!("there is no parameter {name}"))
    }
}

/// A name to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    #[value(aliases = ["arg", "args"])]
    Payload,
    None,
    All,
    Scope,
    Header,
    #[value(alias = "ctx")]
    Context,
}

/// A property to print before the name of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    All,
    Trace,
    #[value(name = "trace:hostname")]
    Hostname,
    #[value(name = "trace:domain")]
    Domain,
    #[value(name = "trace:procname")]
    Procname,
    #[value(name = "trace:vpid")]
    Vpid,
    Loglevel,
    Emf,
    /// Babeltrace takes it and prints nothing for it.
    #[value(hide = true)]
    Callsite,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of babeltrace2")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own on the command line"
)]
pub(super) struct BabeltraceOptions {
    /// Print only events at or after TIME; a whole number is in seconds
    #[arg(short, long, value_name = "TIME", value_parser = written_time, conflicts_with = "from",
        allow_negative_numbers = true)]
    begin: Option<WrittenTime>,
    /// Print only events at or before TIME, inclusive; a whole number is in seconds
    #[arg(short, long, value_name = "TIME", value_parser = written_time, conflicts_with = "to",
        allow_negative_numbers = true)]
    end: Option<WrittenTime>,
    /// Print only events from BEGIN to END, inclusive
    #[arg(long, value_name = "BEGIN,END", value_parser = written_range, allow_hyphen_values = true,
        conflicts_with_all = ["begin", "end", "from", "to"])]
    timerange: Option<(WrittenTime, WrittenTime)>,
    /// Print and parse times in UTC (the default)
    #[arg(long)]
    clock_gmt: bool,
    /// Print and parse times in the local time zone, as babeltrace2 does without --clock-gmt
    #[arg(long, conflicts_with = "clock_gmt")]
    clock_local: bool,
    /// Print times as seconds with a fraction (CTF)
    #[arg(long)]
    clock_seconds: bool,
    /// Print times in cycles of the clock (CTF)
    #[arg(long)]
    clock_cycles: bool,
    /// Print dates with times (CTF)
    #[arg(long)]
    clock_date: bool,
    /// Add SEC seconds to all times (CTF)
    #[arg(long, value_name = "SEC", allow_negative_numbers = true)]
    clock_offset: Option<i64>,
    /// Add NS nanoseconds to all times (CTF)
    #[arg(long, value_name = "NS", allow_negative_numbers = true)]
    clock_offset_ns: Option<i64>,
    /// Leave out the time since the previous event (CTF)
    #[arg(long)]
    no_delta: bool,
    /// Print these names (CTF)
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    names: Vec<Name>,
    /// Print these properties before the name of an event (CTF)
    #[arg(short, long, value_name = "FIELD", value_delimiter = ',')]
    fields: Vec<Field>,
    /// Write to a file instead of the standard output; with --format ctf, to this new folder
    #[arg(short = 'w', long, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
    /// Print all messages with their properties: the same as --format details (CTF)
    #[arg(long, conflicts_with = "format")]
    pub(super) details: bool,
    /// Parameters of --details, as in compact=yes,with-metadata=no (CTF)
    ///
    /// NAME is compact, or with-data, with-metadata, with-stream-class-name, with-stream-name,
    /// with-time, with-trace-name or with-uuid; VALUE is yes or no.
    #[arg(
        short,
        long,
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        value_parser = written_parameter
    )]
    params: Vec<(String, bool)>,
    /// Print only events while all streams of their trace are active (CTF)
    #[arg(long)]
    pub(super) stream_intersection: bool,
}

impl BabeltraceOptions {
    /// True when an option was given that selects events by time.
    pub(super) fn has_times(&self) -> bool {
        self.begin.is_some() || self.end.is_some() || self.timerange.is_some()
    }

    /// Whether a time of day needs the day on which the trace begins.
    pub(super) fn needs_begin(&self) -> bool {
        let range = self.timerange.map(|(begin, end)| [begin, end]);
        let range = range.into_iter().flatten();
        let mut times = self.begin.into_iter().chain(self.end).chain(range);
        times.any(|time| matches!(time.time, Time::TimeOfDay(_)))
    }

    /// Whether there are parameters of the text with details.
    pub(super) fn has_params(&self) -> bool {
        !self.params.is_empty()
    }

    /// The parameters of the text with details.
    pub(super) fn details(&self) -> DetailsOptions {
        let mut options = DetailsOptions::default();
        for (name, value) in &self.params {
            // Unknown names were refused when they were parsed.
            let _is_known = options.set(name, *value);
        }
        options
    }

    /// True when an option was given for how events are printed as lines.
    pub(super) fn has_style(&self) -> bool {
        let clock = self.clock_local || self.clock_seconds || self.clock_cycles || self.clock_date;
        let shift = self.clock_offset.is_some() || self.clock_offset_ns.is_some();
        let choice = !self.names.is_empty() || !self.fields.is_empty();
        clock || shift || choice || self.no_delta
    }

    /// True when an option was given that only events of CTF traces have.
    pub(super) fn is_of_ctf(&self) -> bool {
        self.has_style() || self.stream_intersection || self.details || self.has_params()
    }

    /// The first and the last instant to print; `reference` supplies the day for times of day.
    pub(super) fn window(
        &self,
        reference: Option<i64>,
    ) -> Result<(Option<i64>, Option<i64>), TimeErrorKind> {
        let (begin, end) = match self.timerange {
            Some((begin, end)) => (Some(begin), Some(end)),
            None => (self.begin, self.end),
        };
        let instant = |time: Option<WrittenTime>| {
            let instant = time.map(|time| time.instant(reference, self.clock_local));
            instant.transpose()
        };
        Ok((instant(begin)?, instant(end)?))
    }

    /// Two options, or values of one, that cannot be combined.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let has = |name| self.names.contains(&name);
        (has(Name::None) && has(Name::All))
            .then_some("--names: all and none cannot be combined; give one of them")
    }

    /// How events are printed as text; `None` when the offset of the clock exceeds 64 bits.
    pub(super) fn style(&self) -> Option<TextStyle> {
        let clock = if self.clock_cycles {
            ClockText::Cycles
        } else if self.clock_seconds {
            ClockText::Seconds
        } else if self.clock_date {
            ClockText::Date
        } else {
            ClockText::TimeOfDay
        };
        let seconds = self.clock_offset.unwrap_or(0);
        let clock_offset = seconds
            .checked_mul(NANOS_PER_SECOND)?
            .checked_add(self.clock_offset_ns.unwrap_or(0))?;
        Some(TextStyle {
            clock,
            local_offset: self.clock_local.then_some(local_offset as fn(i64) -> i64),
            clock_offset,
            no_delta: self.no_delta,
            names: self.names(),
            fields: self.fields(),
        })
    }

    fn names(&self) -> NameChoice {
        if self.names.is_empty() {
            return NameChoice::default();
        }
        let has = |name| self.names.contains(&name) || self.names.contains(&Name::All);
        NameChoice {
            payload: has(Name::Payload),
            context: has(Name::Context),
            scope: has(Name::Scope),
            header: has(Name::Header),
        }
    }

    fn fields(&self) -> FieldChoice {
        if self.fields.is_empty() {
            return FieldChoice::default();
        }
        let has = |field| self.fields.contains(&field) || self.fields.contains(&Field::All);
        FieldChoice {
            trace: has(Field::Trace),
            hostname: has(Field::Hostname),
            domain: has(Field::Domain),
            procname: has(Field::Procname),
            vpid: has(Field::Vpid),
            loglevel: has(Field::Loglevel),
            emf: has(Field::Emf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_an_offset_are_not_local() {
        let check = |text: &str, expected: bool| assert_eq!(is_civil(text), expected, "{text}");
        check("2026-11-21", true);
        check("2026-11-21 01:00:00.5", true);
        check("2026-11-21T01:00", true);
        check("01:00", true);
        check("2026-11-21T01:00:00Z", false);
        check("2026-11-21T01:00:00+01:00", false);
        check("2026-11-21T01:00:00-05:00", false);
        check("1795222800.5", false);
        check("-3", false);
    }

    #[test]
    fn whole_numbers_are_seconds_and_ranges_have_brackets() {
        let second = |seconds: i64| Time::Instant(seconds * NANOS_PER_SECOND);
        assert_eq!(written_time("17").unwrap().time, second(17));
        for text in ["17,18.5", "[17,18.5]"] {
            let (begin, end) = written_range(text).unwrap();
            assert_eq!(begin.time, second(17));
            assert_eq!(end.time, Time::Instant(18_500_000_000));
        }
        for text in ["17", "[17,18", "17,x", "[17,18],19", ""] {
            assert!(written_range(text).is_err(), "{text}");
        }
    }
}
