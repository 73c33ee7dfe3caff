//! Decodes a trace folder at full speed, in bounded memory, and prints the counts.
//!
//! `cargo run --release -p ctf --example speed -- FOLDER MODE [THREADS [mapped]]`, with the mode
//! `elements`, `events`, `time` (with the name) or `end`, which only prints the time of the last
//! event in nanoseconds.
//!
//! `mapped` decodes from mapped files, as yactfr and Babeltrace do, instead of reading a few MiB at
//! a time. This saves one copy; the files must not change meanwhile.
//!
//! The program shows how readers share one plan: the headers of all packets are read first, then
//! each thread reads a few MiB of adjacent packets at a time into a buffer.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

use ctf::{Element, ElementReader, EventReader, Plan, Procedure, Value};

/// Enough for the header and the context of a packet.
const PREAMBLE_BYTES: usize = 1 << 16;
/// Bytes that a thread reads at a time, unless one packet is longer.
const UNIT_BYTES: usize = 1 << 20;

type Failure = Box<dyn Error + Send + Sync>;

/// Adjacent packets of a stream file.
struct Unit {
    file: usize,
    begin: usize,
    end: usize,
}

#[derive(Default)]
struct Counts {
    events: u64,
    values: u64,
    /// Prevents the compiler from removing unused values.
    sum: u64,
}

impl Counts {
    fn integer(&mut self, value: u64) {
        self.values += 1;
        self.sum = self.sum.wrapping_add(value);
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .ok_or("usage: speed FOLDER MODE [THREADS [mapped]]")?;
    let mode = arguments
        .next()
        .ok_or("the mode must be elements, events, time or end")?;
    let threads: usize = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let is_mapped = arguments.next().is_some_and(|input| input == "mapped");

    let metadata = std::fs::read(Path::new(&folder).join("metadata"))?;
    let procedure = Procedure::new(ctf::parse_metadata(&metadata)?)?;
    let plan = match mode.as_str() {
        "events" => Plan::everything(&procedure),
        _ => Plan::nothing(&procedure),
    };
    let files = streams(Path::new(&folder))?;
    let maps = if is_mapped {
        files.iter().map(map).collect::<Result<Vec<_>, _>>()?
    } else {
        Vec::new()
    };
    let units = units(&files, &maps, &plan)?;
    if mode == "end" {
        let end = last_time(&files, &units, &plan)?.ok_or("no event has a time")?;
        return print(format_args!("{end}"));
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<Counts, Failure> {
        let (mut counts, mut buffer) = (Counts::default(), Vec::new());
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let data = if let Some(map) = maps.get(unit.file) {
                &map[unit.begin..unit.end]
            } else {
                buffer.resize(unit.end - unit.begin, 0);
                files[unit.file].read_exact_at(&mut buffer, unit.begin as u64)?;
                &buffer
            };
            match mode.as_str() {
                "elements" => elements(&procedure, data, &mut counts)?,
                "events" => events(&plan, data, &mut counts)?,
                _ => time_and_name(&plan, data, &mut counts)?,
            }
        }
        Ok(counts)
    };
    let all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = vec![work()];
        all.extend(
            others
                .into_iter()
                .map(|other| other.join().expect("a thread panicked")),
        );
        all
    });
    let mut total = Counts::default();
    for counts in all {
        let counts = counts?;
        total.events += counts.events;
        total.values += counts.values;
        total.sum = total.sum.wrapping_add(counts.sum);
    }
    let Counts {
        events,
        values,
        sum,
    } = total;
    print(format_args!("{events} events {values} values sum {sum}"))
}

#[expect(clippy::print_stdout, reason = "the program prints the counts")]
fn print(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    println!("{line}");
    Ok(())
}

#[expect(unsafe_code, reason = "mapping a file is unsafe")]
fn map(file: &File) -> Result<Mmap, Failure> {
    // SAFETY: valid as long as the file does not change, which the user of `mapped` guarantees.
    Ok(unsafe { Mmap::map(file) }?)
}

fn streams(folder: &Path) -> Result<Vec<File>, Failure> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "metadata" {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths.iter().map(File::open).collect::<Result<_, _>>()?)
}

fn units(files: &[File], maps: &[Mmap], plan: &Plan) -> Result<Vec<Unit>, Failure> {
    let mut units = Vec::new();
    let mut preamble = vec![0; PREAMBLE_BYTES];
    for (index, file) in files.iter().enumerate() {
        let length = usize::try_from(file.metadata()?.len())?;
        let mut unit = Unit {
            file: index,
            begin: 0,
            end: 0,
        };
        while unit.end < length {
            let data = if let Some(map) = maps.get(index) {
                &map[unit.end..]
            } else {
                let bytes = file.read_at(&mut preamble, unit.end as u64)?;
                &preamble[..bytes]
            };
            let mut reader = EventReader::new(plan, data);
            let facts = reader.next_packet()?.ok_or("the file is empty")?;
            let packet = facts
                .total_length
                .map_or(length - unit.end, |bits| (bits / 8) as usize);
            unit.end = (unit.end + packet.max(1)).min(length);
            if unit.end - unit.begin >= UNIT_BYTES {
                let begin = unit.end;
                units.push(std::mem::replace(
                    &mut unit,
                    Unit {
                        file: index,
                        begin,
                        end: begin,
                    },
                ));
            }
        }
        if unit.end > unit.begin {
            units.push(unit);
        }
    }
    Ok(units)
}

/// The time of the last event, which is in the last packet of one of the files.
fn last_time(files: &[File], units: &[Unit], plan: &Plan) -> Result<Option<i64>, Failure> {
    let (mut last, mut buffer) = (None, Vec::new());
    for (index, unit) in units.iter().enumerate() {
        if units
            .get(index + 1)
            .is_some_and(|next| next.file == unit.file)
        {
            continue;
        }
        buffer.resize(unit.end - unit.begin, 0);
        files[unit.file].read_exact_at(&mut buffer, unit.begin as u64)?;
        let mut reader = EventReader::new(plan, &buffer);
        while reader.next_packet()?.is_some() {
            while let Some(event) = reader.next_event()? {
                last = last.max(event.nanoseconds());
            }
        }
    }
    Ok(last)
}

fn elements(procedure: &Procedure, data: &[u8], counts: &mut Counts) -> Result<(), Failure> {
    let mut reader = ElementReader::new(procedure, data);
    while let Some(element) = reader.next_element()? {
        counts.values += 1;
        match element {
            Element::RecordBegin => counts.events += 1,
            Element::FixedUnsigned(_, value) => counts.sum = counts.sum.wrapping_add(*value),
            _ => {}
        }
    }
    Ok(())
}

fn events(plan: &Plan, data: &[u8], counts: &mut Counts) -> Result<(), Failure> {
    let mut reader = EventReader::new(plan, data);
    while reader.next_packet()?.is_some() {
        while let Some(event) = reader.next_event()? {
            counts.events += 1;
            counts.integer(event.clock().unwrap_or_default());
            // Two accumulators stay in registers.
            let start = (counts.values, counts.sum);
            let (values, sum) = event.all_fields().fold(start, |(values, sum), datum| {
                let value = match datum.value {
                    Value::Unsigned(value) | Value::BitArray(value) | Value::BitMap(value) => value,
                    Value::Signed(value) => value.cast_unsigned(),
                    Value::Float(value) => value.to_bits(),
                    Value::Bool(value) => value.into(),
                    Value::Text(bytes) | Value::Blob(bytes) => bytes.len() as u64,
                    _ => return (values, sum),
                };
                (values + 1, sum.wrapping_add(value))
            });
            (counts.values, counts.sum) = (values, sum);
        }
    }
    Ok(())
}

fn time_and_name(plan: &Plan, data: &[u8], counts: &mut Counts) -> Result<(), Failure> {
    let mut reader = EventReader::new(plan, data);
    while reader.next_packet()?.is_some() {
        while let Some(event) = reader.next_event()? {
            counts.events += 1;
            counts.integer(event.clock().unwrap_or_default());
            counts.integer(event.name().map_or(0, |name| name.len() as u64));
        }
    }
    Ok(())
}
