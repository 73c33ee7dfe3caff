use std::path::PathBuf;

use clap::Args;
use query_language::time::{Bound, parse_bound};
use serde_json::{Map, Value};

use super::super::context::counted;
use super::super::record::read_json;
use super::super::{CommandError, Context, Exit};
use super::jobs::watch;
use crate::clock::now_nanos;
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// Storage to copy from, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Open storage to copy into, by ID or name [default: a new storage]
    #[arg(long, value_name = "ID|NAME", conflicts_with = "name")]
    to_storage: Option<String>,
    /// Name of the new storage
    #[arg(long)]
    name: Option<String>,
    /// Copy only packets of this agent; may be repeated
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// Copy only packets of streams with this ID; may be repeated
    #[arg(long = "stream", value_name = "STREAM")]
    streams: Vec<String>,
    /// Copy only packets of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Copy derived streams, too (clones, spans, exceptions, aggregates)
    #[arg(long)]
    derived: bool,
    /// Copy only packets that may contain events at or after TIME
    ///
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, a number since 1970 with the unit ns, us,
    /// ms or s, nanoseconds since 1970, seconds since 1970 with a fraction, or a duration before
    /// now (-1h).
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    from: Option<Bound>,
    /// Copy only packets that may contain events before TIME
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    to: Option<Bound>,
    /// Copy only matching events
    #[arg(long, value_name = "EXPR")]
    query: Option<String>,
    /// JSON file with a chain of processors to apply
    #[arg(long, value_name = "FILE")]
    processors: Option<PathBuf>,
    /// Finalize the new storage afterwards
    #[arg(long)]
    finalize: bool,
    /// Copy from a damaged storage, too, without what is behind the damage; the exit code is 1 then
    #[arg(long)]
    allow_incomplete: bool,
}

/// The number without a unit that is a time in microseconds, too, as DFTracer and Chrome have them.
fn two_readings(bound: Bound) -> Option<i64> {
    match bound {
        Bound::Bare(number) if number != 0 && number.checked_mul(1_000).is_some() => Some(number),
        _ => None,
    }
}

impl Copy {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let source = client.find_storage(&self.storage).await?.id;
        let mut request = Map::new();
        if let Some(text) = &self.to_storage {
            let target = client.find_storage(text).await?.id;
            request.insert("storage".to_owned(), target.to_string().into());
        }
        for (option, bound) in [("--from", self.from), ("--to", self.to)] {
            if let Some(number) = bound.and_then(two_readings) {
                return Err(CommandError::usage(format!(
                    "{option}: {number} has no unit, and the storage may have times in \
                     microseconds; write {number}us, {number}ns or a date"
                )));
            }
        }
        let now = now_nanos();
        let time = |bound: Bound| Value::from(bound.nanos(now));
        let members = [
            ("name", self.name.map(Value::from)),
            ("from", self.from.map(time)),
            ("to", self.to.map(time)),
            ("query", self.query.map(Value::from)),
        ];
        for (name, value) in members {
            request.extend(value.map(|value| (name.to_owned(), value)));
        }
        let lists = [
            ("agents", self.agents),
            ("streams", self.streams),
            ("kinds", self.kinds),
        ];
        for (name, list) in lists {
            request.insert(name.to_owned(), list.into());
        }
        if let Some(path) = &self.processors {
            request.insert("processors".to_owned(), read_json(path)?);
        }
        request.insert("derived".to_owned(), self.derived.into());
        request.insert("auto_finalize".to_owned(), self.finalize.into());
        if self.allow_incomplete {
            request.insert("allow_incomplete".to_owned(), true.into());
        }
        let job = client.copy_storage(source, &Value::Object(request)).await?;
        let copied = watch(context, client, job).await?;
        context.print(&copied, || {
            let storage = copied["storage"].as_str().unwrap_or_default();
            let packets = copied["packets"].as_u64().unwrap_or_default();
            format!("{} copied to {storage}", counted(packets, "packet"))
        })?;
        let incomplete = copied["incomplete"].as_str();
        if let Some(reason) = incomplete {
            context.note(format!(
                "the copy lacks what is behind a damage of the source, or missing in it: {reason}"
            ));
        }
        let missing = copied["missing_packets"].as_u64().unwrap_or_default();
        if missing > 0 {
            let missing = counted(missing, "packet");
            context.note(format!(
                "up to {missing} of the source are missing since it was repaired"
            ));
        }
        Ok(Exit::of_integrity(incomplete.is_none() && missing == 0))
    }
}
