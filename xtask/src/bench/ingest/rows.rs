//! The rows: what is compared, and the target of each figure.

use std::cell::RefCell;
use std::time::Duration;

use harness::{Body, Pace};

use super::super::paired::{Figures, Side, Target, Verdict, alternate, median};
use super::super::table::{Table, number};
use super::twin::{Twin, TwinPace, TwinReport};
use super::{Bench, MIB, Measured, Party, disk};
use crate::failure::Outcome;

/// A packet of the main comparison.
const PACKET_BYTES: usize = 64 << 10;

/// Packets in a request with many: 1 MiB; `tracehold push` sends up to 8 MiB.
const LARGE_COUNT: usize = 16;

/// The factor by which a crowd has more streams: each stream still waits for every acknowledgement,
/// but the disk is not idle while one of them does.
const CROWD: usize = 8;

/// A small packet, and the number of small packets in one request.
const SMALL_BYTES: usize = 1 << 10;
const SMALL_COUNT: usize = 256;

/// A packet of the rows with many streams.
const BLOCK_BYTES: usize = 4 << 10;
const MANY_STREAMS: usize = 1000;
const FEW_STREAMS: usize = 100;
const MOST_STREAMS: usize = 10_000;

/// The threads of the twin, and how long each of them waits after a packet: about as long as a
/// producer of the load needs for the next request.
const TWIN_THREADS: u32 = 16;
const TWIN_PAUSE: Duration = Duration::from_micros(250);

const OF_TWIN_MIN: f64 = 0.75;
const OF_FIO_MIN: f64 = 0.5;
const OF_DISCARD_MIN: f64 = 0.5;
const SMALL_OF_DISCARD_MIN: f64 = 0.4;
const MOST_OF_FEW_MIN: f64 = 0.8;
const HOURS_OF_SECONDS_MIN: f64 = 0.9;
const ACK_OF_TWIN_MAX: f64 = 3.0;
const ACK_P99_MS_MAX: f64 = 20.0;

pub(super) fn single(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let streams = bench.durable.options.streams;
    let mut verdicts = against_disk(bench, Body::One(PACKET_BYTES), streams)?;
    verdicts.extend(half_load(bench, Body::One(PACKET_BYTES), streams)?);
    Ok(verdicts)
}

pub(super) fn crowd(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let streams = bench.durable.options.streams * CROWD;
    against_disk(bench, Body::One(PACKET_BYTES), streams)
}

pub(super) fn large(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let streams = bench.durable.options.streams;
    against_disk(bench, Body::Many(PACKET_BYTES, LARGE_COUNT), streams)
}

/// The loads of a party, and one figure of each.
struct Loads<'b> {
    party: Party,
    body: Body,
    pace: Pace,
    measured: &'b RefCell<Vec<Measured>>,
}

impl<'b> Loads<'b> {
    fn side(self, name: &'b str, figure: fn(&Measured) -> f64) -> Side<'b> {
        Side {
            name,
            run: Box::new(move || {
                let measured = self.party.measure(self.body, self.pace)?;
                let shown = figure(&measured);
                self.measured.borrow_mut().push(measured);
                Ok(shown)
            }),
        }
    }
}

/// The median of a figure over all loads but the first, which warms the server.
fn median_of(measured: &RefCell<Vec<Measured>>, figure: fn(&Measured) -> f64) -> f64 {
    let measured = measured.borrow();
    let figures: Vec<f64> = measured.iter().skip(1).map(figure).collect();
    median(&figures)
}

fn mib_per_second(measured: &Measured) -> f64 {
    measured.report.bytes_per_second() / MIB
}

fn packets_per_second(measured: &Measured) -> f64 {
    measured.report.packets_per_second()
}

/// All contenders: the server durable and discarding, the twin, and fio.
fn against_disk(bench: &Bench, body: Body, streams: usize) -> Outcome<Vec<Verdict>> {
    let (durable, discarded) = (RefCell::default(), RefCell::default());
    let twins = RefCell::new(Vec::new());
    let loads = |party: &Party, measured| Loads {
        party: party.with(streams),
        body,
        pace: Pace::Full,
        measured,
    };
    let twin = twin(bench, PACKET_BYTES);
    let mut sides = [
        loads(&bench.durable, &durable).side("durable pushes", mib_per_second),
        loads(&bench.discard, &discarded).side("bodies discarded", mib_per_second),
        Side {
            name: "bare twin",
            run: Box::new(|| {
                let report = twin.run(&bench.folder)?;
                let rate = report.bytes_per_second() / MIB;
                print_twin(&report);
                twins.borrow_mut().push(report);
                Ok(rate)
            }),
        },
        Side {
            name: "fio, durable",
            run: Box::new(|| disk::fio(&bench.folder, twin.duration)),
        },
    ];
    let figures = alternate(bench.runs, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("MiB/s", &figures));
    let twins = twins.borrow();
    let of_twins = |figure: fn(&TwinReport) -> f64| {
        let figures: Vec<f64> = twins.iter().skip(1).map(figure).collect();
        median(&figures)
    };
    println!(
        "CPU µs a packet: durable {:.1}, discarded {:.1}, twin {:.1}; packets a sync: durable {:.1}, \
         twin {:.1}",
        median_of(&durable, Measured::cpu_per_packet),
        median_of(&discarded, Measured::cpu_per_packet),
        of_twins(TwinReport::cpu_micros_per_packet),
        median_of(&durable, Measured::packets_per_sync),
        of_twins(TwinReport::packets_per_sync),
    );
    let per_request = match body {
        Body::Many(_, count) => count,
        Body::One(_) | Body::Timed(..) => 1,
    };
    let what = format!("64 KiB durable pushes, {per_request} a request, {streams} streams");
    let limits = [
        (2, "the twin", OF_TWIN_MIN),
        (3, "fio", OF_FIO_MIN),
        (1, "the discard rate", OF_DISCARD_MIN),
    ];
    let verdict = |(side, name, limit): (usize, &str, f64)| {
        let ratio = figures[0].ratio(&figures[side]);
        Verdict::new(format!("{what}, of {name}"), Target::AtLeast(limit), ratio)
    };
    Ok(limits.map(verdict).into())
}

fn twin(bench: &Bench, packet_bytes: usize) -> Twin {
    Twin {
        threads: TWIN_THREADS,
        packet_bytes,
        pace: TwinPace::Pause(TWIN_PAUSE),
        duration: bench.durable.options.duration,
    }
}

fn print_twin(report: &TwinReport) {
    eprintln!(
        "  twin: {} MiB/s, {:.1} packets a sync, {:.1} CPU-µs/packet",
        number(report.bytes_per_second() / MIB),
        report.packets_per_sync(),
        report.cpu_micros_per_packet(),
    );
}

/// Latency at half of the rate at which the server answers these requests.
fn half_load(bench: &Bench, body: Body, streams: usize) -> Outcome<Vec<Verdict>> {
    let party = bench.durable.with(streams);
    let full = party.measure(body, Pace::Full)?;
    let half = full.report.requests_per_second() / 2.0;
    let acks = party.measure(body, Pace::PerSecond(half))?.report;
    println!(
        "latency at {half:.0} requests/s: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
        acks.latency_ms(0.5),
        acks.latency_ms(0.99),
        acks.latency_ms(0.999),
        acks.latency_ms(1.0),
    );
    Ok(vec![Verdict::new(
        format!("p99 latency at half load, 64 KiB, 1 a request, {streams} streams, ms"),
        Target::AtMost(ACK_P99_MS_MAX),
        acks.latency_ms(0.99),
    )])
}

/// The same load on the durable and on the discarding server.
fn against_discard(
    bench: &Bench,
    what: &str,
    body: Body,
    streams: usize,
    limit: f64,
) -> Outcome<Vec<Verdict>> {
    let (durable, discarded) = (RefCell::default(), RefCell::default());
    let loads = |party: &Party, measured| Loads {
        party: party.with(streams),
        body,
        pace: Pace::Full,
        measured,
    };
    let mut sides = [
        loads(&bench.durable, &durable).side("durable", packets_per_second),
        loads(&bench.discard, &discarded).side("discarded", packets_per_second),
    ];
    let figures = alternate(bench.runs, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("packets/s", &figures));
    println!(
        "CPU µs a packet: durable {:.2}, discarded {:.2}; packets a sync {:.1}; generator {:.2} \
         processors",
        median_of(&durable, Measured::cpu_per_packet),
        median_of(&discarded, Measured::cpu_per_packet),
        median_of(&durable, Measured::packets_per_sync),
        median_of(&durable, Measured::generator_processors),
    );
    Ok(vec![of_other(
        format!("{what}, of the discard rate"),
        limit,
        &figures,
    )])
}

fn of_other(what: String, limit: f64, figures: &[Figures]) -> Verdict {
    let ratio = figures[0].ratio(&figures[1]);
    Verdict::new(what, Target::AtLeast(limit), ratio)
}

pub(super) fn small(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let (body, streams) = (
        Body::Many(SMALL_BYTES, SMALL_COUNT),
        bench.durable.options.streams,
    );
    let what = "1 KiB packets in batches";
    against_discard(bench, what, body, streams, SMALL_OF_DISCARD_MIN)
}

pub(super) fn many(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let body = Body::One(BLOCK_BYTES);
    let what = "1,000 streams of 4 KiB";
    against_discard(bench, what, body, MANY_STREAMS, OF_DISCARD_MIN)
}

/// Two loads on the durable server.
fn against_itself(
    bench: &Bench,
    what: &str,
    limit: f64,
    loads: [(&str, Party, Body); 2],
) -> Outcome<Vec<Verdict>> {
    let measured = [RefCell::default(), RefCell::default()];
    let mut sides: Vec<Side<'_>> = loads
        .iter()
        .zip(&measured)
        .map(|((name, party, body), measured)| {
            let loads = Loads {
                party: party.clone(),
                body: *body,
                pace: Pace::Full,
                measured,
            };
            loads.side(name, packets_per_second)
        })
        .collect();
    let figures = alternate(bench.runs, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("packets/s", &figures));
    for ((name, ..), measured) in loads.iter().zip(&measured) {
        println!(
            "{name}: CPU µs a packet {:.2}, generator {:.2} processors",
            median_of(measured, Measured::cpu_per_packet),
            median_of(measured, Measured::generator_processors),
        );
    }
    Ok(vec![of_other(what.to_owned(), limit, &figures)])
}

pub(super) fn streams(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let body = Body::One(BLOCK_BYTES);
    let party = |streams| bench.durable.sharing(streams, FEW_STREAMS);
    let loads = [
        ("10,000 streams", party(MOST_STREAMS), body),
        ("100 streams", party(FEW_STREAMS), body),
    ];
    let what = "10,000 streams of 4 KiB, of the rate of 100";
    against_itself(bench, what, MOST_OF_FEW_MIN, loads)
}

pub(super) fn hours(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let apart = |seconds| Body::Timed(SMALL_BYTES, Duration::from_secs(seconds));
    let loads = [
        ("an hour apart", bench.durable.clone(), apart(3600)),
        ("a second apart", bench.durable.clone(), apart(1)),
    ];
    let what = "packets an hour apart, of the rate of packets a second apart";
    against_itself(bench, what, HOURS_OF_SECONDS_MIN, loads)
}

/// Latency at half load with many streams: the server, and the twin with as many threads at the
/// same rate.
pub(super) fn acknowledgements(bench: &Bench) -> Outcome<Vec<Verdict>> {
    let body = Body::One(BLOCK_BYTES);
    let party = bench.durable.with(MANY_STREAMS);
    let full = party.measure(body, Pace::Full)?;
    let half = full.report.requests_per_second() / 2.0;
    let twin = Twin {
        threads: u32::try_from(MANY_STREAMS).expect("a small number"),
        pace: TwinPace::PerSecond(half),
        ..twin(bench, BLOCK_BYTES)
    };
    let mut sides = [
        Side {
            name: "durable pushes",
            run: Box::new(|| {
                let measured = party.measure(body, Pace::PerSecond(half))?;
                Ok(measured.report.latency_ms(0.99))
            }),
        },
        Side {
            name: "bare twin",
            run: Box::new(|| {
                let report = twin.run(&bench.folder)?;
                print_twin(&report);
                Ok(report.p99_ms())
            }),
        },
    ];
    let figures = alternate(bench.runs, &mut sides)?;
    drop(sides);
    println!("p99 latency at {half:.0} requests/s");
    print!("{}", Table::of_figures("ms", &figures));
    Ok(vec![Verdict::new(
        "p99 latency at half load, 1,000 streams of 4 KiB, of that of the twin",
        Target::AtMost(ACK_OF_TWIN_MAX),
        figures[0].ratio(&figures[1]),
    )])
}
