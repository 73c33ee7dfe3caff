//! A server in 512 MiB that is offered far more than it can take: requests that would be huge in
//! memory, thousands of idle and slow connections, hundreds of pushers, and a slow disk.
//!
//! The contender is the server itself, before and after.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Agent, Batch, Connection, Request, Server, Settings, payload};
use rustix::process::setpriority_process;

use super::memory_limit::{MemoryLimit, mib};
use super::paired::{Target, Verdict, conclude};
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

/// The memory of the server in `deploy/`.
const LIMIT_BYTES: u64 = 512 << 20;
const GOODPUT_RATIO_MIN: f64 = 0.8;
const HEALTH_MILLISECONDS_MAX: f64 = 100.0;
const RECOVERY_SECONDS_MAX: f64 = 5.0;
/// Time between two requests for health.
const HEALTH_EVERY: Duration = Duration::from_millis(50);
/// Of the client that asks for health.
const PRIORITY: i32 = -10;
const PATIENCE: Duration = Duration::from_secs(30);
/// Packets in a request.
const REQUEST_PACKETS: usize = 4;

/// What the benchmark does, by its options.
struct Plan {
    /// Connections that reach the peak; the overload has ten times as many.
    pushers: usize,
    /// Connections that are idle, or send a byte now and then.
    idle: usize,
    seconds: u64,
    packet_bytes: usize,
    /// Bytes that the disk takes per second; 0 for no limit.
    disk_bytes: u64,
}

/// `--pushers 40 --idle 5000 --seconds 60 --packet-bytes 65536 --disk-bytes 50000000`; the short
/// form is `--short true`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let is_short: bool = options.get("short", false)?;
    let of = |long: u64, short: u64| if is_short { short } else { long };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let plan = Plan {
        pushers: options.get("pushers", count(of(40, 10)))?,
        idle: options.get("idle", count(of(5000, 500)))?,
        seconds: options.get("seconds", of(60, 8))?,
        packet_bytes: options.get("packet-bytes", 65_536)?,
        disk_bytes: options.get("disk-bytes", 50_000_000)?,
    };
    let folder = fresh_folder("bench/overload")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let mut server = Server::start(&folder, &settings);
    let Some(mut limit) = MemoryLimit::of(server.pid(), LIMIT_BYTES) else {
        return Err(Failure::Run(
            "no control group can limit the memory of the server: this needs root".to_owned(),
        ));
    };
    if plan.disk_bytes > 0
        && limit
            .slow_writes(server.pid(), &folder, plan.disk_bytes)
            .is_none()
    {
        println!("the disk cannot be made slow here: it has its own speed");
    }
    let measured = measure(&plan, &server);
    let is_alive = server
        .connect()
        .send(&Request::new("GET", "/livez"))
        .is_ok();
    let peak = mib(server.peak_bytes());
    server.terminate();
    server.wait(PATIENCE);
    conclude(&verdicts(&measured, is_alive, peak));
    Ok(())
}

/// Acknowledged bytes per second of the three phases, and what else was seen.
struct Measured {
    peak: f64,
    during: f64,
    refused: u64,
    health: Vec<f64>,
    recovery: f64,
}

fn verdicts(measured: &Measured, is_alive: bool, peak_mib: f64) -> Vec<Verdict> {
    let Measured {
        peak,
        during,
        refused,
        health,
        recovery,
    } = measured;
    let at = |share: usize| {
        let index = (health.len() * share / 1000).min(health.len().saturating_sub(1));
        health.get(index).copied().unwrap_or(f64::NAN)
    };
    println!(
        "peak {:.1} MB/s, in the overload {:.1} MB/s; {refused} requests refused; health of {} \
         requests: median {:.1} ms, 99 % {:.1} ms, longest {:.1} ms; {peak_mib:.0} MiB",
        peak / 1e6,
        during / 1e6,
        health.len(),
        at(500),
        at(990),
        at(1000),
    );
    let alive = f64::from(u8::from(is_alive));
    vec![
        Verdict::new("the server is alive", Target::AtLeast(1.0), alive),
        Verdict::new(
            "goodput, overload / peak",
            Target::AtLeast(GOODPUT_RATIO_MIN),
            during / peak,
        ),
        Verdict::new(
            "health, 99 %, ms",
            Target::AtMost(HEALTH_MILLISECONDS_MAX),
            at(990),
        ),
        Verdict::new(
            "back to normal, s",
            Target::AtMost(RECOVERY_SECONDS_MAX),
            *recovery,
        ),
    ]
}

/// What all threads of a phase share.
#[derive(Default)]
struct Phase {
    is_over: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Phase {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

fn measure(plan: &Plan, server: &Server) -> Measured {
    let mut api = server.api();
    let storage = api.create_storage("overload");
    let count = 10 * plan.pushers;
    let agents: Vec<Agent> = (0..count)
        .map(|at| {
            let agent = format!("agent-{}", at % 20);
            Agent::declare(&mut api, &storage, &agent, &format!("stream-{at}"), "none")
        })
        .collect();
    let mut pushers: Vec<Pusher> = (agents.iter().enumerate())
        .map(|(at, agent)| {
            Pusher::new(server.address(), agent.path(), at as u64, plan.packet_bytes)
        })
        .collect();
    let duration = Duration::from_secs(plan.seconds);
    let (few, _) = pushers.split_at_mut(plan.pushers);
    // The first seconds fill caches and open files.
    push_for(few, duration.min(Duration::from_secs(5)), |_| ());
    let (peak, ..) = push_for(few, duration.min(Duration::from_secs(20)), |_| ());
    let (during, refused, health) = push_for(&mut pushers, duration, |phase| {
        disturb(phase, server.address(), plan.idle)
    });
    let ended = Instant::now();
    let (few, _) = pushers.split_at_mut(plan.pushers);
    let mut recovery = f64::INFINITY;
    while ended.elapsed() < PATIENCE {
        let (now, refused, _) = push_for(few, Duration::from_secs(1), |_| ());
        if now >= GOODPUT_RATIO_MIN * peak && refused == 0 {
            // The second that was as before counts from its begin.
            recovery = ended.elapsed().as_secs_f64() - 1.0;
            break;
        }
    }
    Measured {
        peak,
        during,
        refused,
        health,
        recovery,
    }
}

/// Pushes on all connections for this long, next to `others`, which return latencies in ms. Returns
/// acknowledged bytes per second and the number of refusals, too.
fn push_for<T: Default + Send>(
    pushers: &mut [Pusher],
    duration: Duration,
    others: impl FnOnce(&Phase) -> T + Send,
) -> (f64, u64, T) {
    let phase = Phase::default();
    let began = Instant::now();
    let (acknowledged, seconds, found) = thread::scope(|scope| {
        for pusher in pushers {
            let phase = &phase;
            scope.spawn(move || pusher.run(phase));
        }
        let others = scope.spawn(|| others(&phase));
        thread::sleep(duration);
        let acknowledged = phase.acknowledged.load(Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        phase.is_over.store(true, Ordering::Relaxed);
        (acknowledged, seconds, others.join().unwrap_or_default())
    });
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown with four digits"
    )]
    let rate = acknowledged as f64 / seconds;
    (rate, phase.refused.load(Ordering::Relaxed), found)
}

/// A connection that pushes batches of its stream, and none that the server has refused is lost.
struct Pusher {
    address: SocketAddr,
    agent: Agent,
    /// Made before the time counts: whoever makes packets takes the processors from the server.
    batch: Batch,
    next: u64,
    batch_bytes: u64,
}

impl Pusher {
    fn new(address: SocketAddr, path: &str, stream: u64, packet_bytes: usize) -> Self {
        let agent = Agent::of_path(path);
        let packets = (0..REQUEST_PACKETS as u64).map(|at| payload(stream, at, packet_bytes));
        Self {
            address,
            batch: agent.batch(&packets.collect::<Vec<_>>()),
            agent,
            next: 0,
            batch_bytes: (REQUEST_PACKETS * packet_bytes) as u64,
        }
    }

    fn run(&mut self, phase: &Phase) {
        let mut api = None;
        while phase.goes_on() {
            let connected = match &mut api {
                Some(api) => api,
                None => match Connection::open(self.address) {
                    Ok(connection) => api.insert(harness::Api::new(connection)),
                    Err(_) => continue,
                },
            };
            match (self.agent).post_batch(connected, self.next, &mut self.batch) {
                Ok(answer) if answer.status == 200 => {
                    self.next += REQUEST_PACKETS as u64;
                    (phase.acknowledged).fetch_add(self.batch_bytes, Ordering::Relaxed);
                }
                Ok(answer) => {
                    phase.refused.fetch_add(1, Ordering::Relaxed);
                    // A part of the batch may be stored.
                    let stored = answer.json()["receipts"].as_array().map_or(0, Vec::len);
                    self.next += stored as u64;
                    let bytes = self.batch_bytes / REQUEST_PACKETS as u64 * stored as u64;
                    phase.acknowledged.fetch_add(bytes, Ordering::Relaxed);
                    api = None;
                }
                Err(_) => {
                    // It is not known what is stored; the same packets are pushed again.
                    phase.refused.fetch_add(1, Ordering::Relaxed);
                    api = None;
                }
            }
        }
    }
}

/// Everything besides the pushers, and a client that asks for health; returns its latencies in ms,
/// sorted.
fn disturb(phase: &Phase, address: SocketAddr, idle: usize) -> Vec<f64> {
    thread::scope(|scope| {
        scope.spawn(|| stay_idle(phase, address, idle));
        scope.spawn(|| send_bombs(phase, address));
        // Who asks for health is no part of the load, and must not wait for its hundreds of
        // threads. This concerns the calling thread, and none of the server.
        let is_preferred = setpriority_process(None, PRIORITY).is_ok();
        debug_assert!(is_preferred, "a limit of memory needs root, too");
        let mut latencies = Vec::new();
        while phase.goes_on() {
            let began = Instant::now();
            let answer = Connection::open(address)
                .and_then(|mut connection| connection.send(&Request::new("GET", "/livez")));
            let took = began.elapsed();
            let is_answered = answer.is_ok_and(|answer| answer.status == 200);
            latencies.push(if is_answered {
                took.as_secs_f64() * 1e3
            } else {
                f64::INFINITY
            });
            thread::sleep(HEALTH_EVERY.saturating_sub(took));
        }
        latencies.sort_by(f64::total_cmp);
        latencies
    })
}

/// Keeps connections open: every second one has begun a head, to which it adds a byte now and then,
/// or a body of which it declared much. Those that the server closes are opened again.
fn stay_idle(phase: &Phase, address: SocketAddr, count: usize) {
    let head = "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
                application/x-protobuf\r\ncontent-length: 16000000\r\n\r\n";
    let mut open: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let mut scratch = [0; 1024];
    while phase.goes_on() {
        for (at, place) in open.iter_mut().enumerate() {
            if !phase.goes_on() {
                return;
            }
            let Some(stream) = place else {
                let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1))
                else {
                    continue;
                };
                let begun = match at % 4 {
                    0 | 1 => "",
                    2 => "GET /livez HTTP/1.1\r\nhost: local",
                    _ => head,
                };
                let is_sent = stream.write_all(begun.as_bytes()).is_ok();
                let is_ready = stream.set_nonblocking(true).is_ok();
                *place = (is_sent && is_ready).then_some(stream);
                continue;
            };
            let is_slow = at % 4 >= 2;
            let is_closed = match stream.read(&mut scratch) {
                Ok(count) => count == 0,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            if is_closed || (is_slow && stream.write_all(b"a").is_err()) {
                *place = None;
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Sends requests that are small and would be huge in memory, one after another.
fn send_bombs(phase: &Phase, address: SocketAddr) {
    let bombs = [
        ("application/x-protobuf", gzip(b"\n\0", 15_000, "", "")),
        (
            "application/json",
            gzip(b"{},", 10_000, r#"{"resourceSpans":["#, "{}]}"),
        ),
    ];
    for (media_type, body) in bombs.iter().cycle() {
        if !phase.goes_on() {
            return;
        }
        let request = Request::new("POST", "/v1/traces")
            .header("content-type", media_type)
            .header("content-encoding", "gzip")
            .body(body);
        // The answer does not matter, as long as there is a server.
        drop(Connection::open(address).and_then(|mut connection| connection.send(&request)));
        thread::sleep(Duration::from_millis(200));
    }
}

/// Repeats a piece a thousand times `thousands` times, compressed by `gzip`.
fn gzip(piece: &[u8], thousands: usize, before: &str, after: &str) -> Vec<u8> {
    let mut program = std::process::Command::new("gzip")
        .arg("-9")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("gzip is installed");
    let mut input = program.stdin.take().expect("it is a pipe");
    let block = piece.repeat(1000);
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            let mut write = |bytes: &[u8]| input.write_all(bytes).expect("gzip reads");
            write(before.as_bytes());
            (0..thousands).for_each(|_| write(&block));
            write(after.as_bytes());
        });
        program.wait_with_output().expect("gzip runs")
    });
    output.stdout
}
