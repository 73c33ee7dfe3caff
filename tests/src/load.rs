//! A load of pushes that uses little CPU itself: one thread per kept-alive connection, bodies
//! prepared in advance, and only the status of each response is checked.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::{Agent, batch_header};
use crate::api::Api;
use crate::http::Connection;
use crate::payload::payload;

/// The number of different packets that a connection sends in turn, so that caches do not always
/// see the same bytes.
const PAYLOAD_COUNT: u64 = 8;

/// Streams of one agent: its file names all of them and is rewritten for each.
const STREAMS_OF_AGENT: usize = 64;

/// Threads that declare streams.
const DECLARING_THREADS: usize = 16;

/// The content of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// One packet of this many bytes.
    One(usize),
    /// Many packets: bytes of each, packets in a request.
    Many(usize, usize),
    /// One packet of this many bytes with an event; those of a stream are this far apart in time.
    Timed(usize, Duration),
}

impl Body {
    fn kind(self) -> &'static str {
        match self {
            Self::One(_) | Self::Many(..) => "raw",
            Self::Timed(..) => "dft",
        }
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each request as soon as the previous one was answered.
    Full,
    /// This many requests per second over all connections, whether responses arrive or not: the
    /// latency of a response counts from the time at which its request was due.
    PerSecond(f64),
}

/// A load on one storage.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// The storage that packets are pushed into.
    pub storage: String,
    /// Streams.
    pub streams: usize,
    /// Connections; each serves its share of the streams in turn. At most one per stream is used.
    pub connections: usize,
    /// The content of a request.
    pub body: Body,
    /// When requests are sent.
    pub pace: Pace,
    /// The codec of the streams: `none` or `zstd`.
    pub codec: &'static str,
    /// The duration.
    pub duration: Duration,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Packets acknowledged.
    pub packets: u64,
    /// Payload bytes acknowledged.
    pub bytes: u64,
    /// From the first request to the last response.
    pub seconds: f64,
    /// CPU seconds of the process that generated the load, in that time.
    pub generator_cpu: f64,
    /// Microseconds from a request to its response, ascending.
    pub latencies: Vec<u32>,
}

/// CPU time of this process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).map_or(f64::NAN, |time| time.as_secs_f64())
}

impl LoadReport {
    /// Payload bytes per second.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown with four digits"
    )]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Packets per second.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown with four digits"
    )]
    pub fn packets_per_second(&self) -> f64 {
        self.packets as f64 / self.seconds
    }

    /// Requests per second.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown with four digits"
    )]
    pub fn requests_per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    /// The latency in milliseconds that this share (0 to 1) of all responses did not exceed.
    pub fn latency_ms(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count of requests is a small positive number"
        )]
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        let latency = self.latencies.get(rank.saturating_sub(1)).copied();
        latency.map_or(f64::NAN, |micros| f64::from(micros) / 1000.0)
    }
}

/// A load whose streams are declared.
pub struct PreparedLoad {
    load: Load,
    lanes: Vec<Lane>,
}

impl PreparedLoad {
    /// Runs the load to the end.
    ///
    /// # Panics
    /// If the server refuses a packet or closes a connection.
    pub fn run(self) -> LoadReport {
        let Self { load, lanes } = self;
        let (begin, cpu_before) = (Instant::now(), cpu_seconds());
        let reports: Vec<LaneReport> = thread::scope(|scope| {
            let load = &load;
            let spawn = |lane: Lane| scope.spawn(move || lane.run(load, begin));
            let threads: Vec<_> = lanes.into_iter().map(spawn).collect();
            threads.into_iter().map(join).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let generator_cpu = cpu_seconds() - cpu_before;
        let mut latencies: Vec<u32> = reports
            .iter()
            .flat_map(|report| report.latencies.iter().copied())
            .collect();
        latencies.sort_unstable();
        LoadReport {
            packets: reports.iter().map(|report| report.packets).sum(),
            bytes: reports.iter().map(|report| report.bytes).sum(),
            seconds,
            generator_cpu,
            latencies,
        }
    }
}

impl Load {
    /// Runs the load to the end.
    ///
    /// # Panics
    /// If the server refuses a packet or closes a connection.
    pub fn run(self) -> LoadReport {
        self.prepare().run()
    }

    /// Declares the streams.
    ///
    /// # Panics
    /// If the server refuses that.
    pub fn prepare(self) -> PreparedLoad {
        let lanes = self.lanes();
        PreparedLoad { load: self, lanes }
    }

    /// Connections used: none is without a stream.
    fn lane_count(&self) -> usize {
        self.connections.min(self.streams)
    }

    /// The connections with their streams, which are declared by several threads.
    fn lanes(&self) -> Vec<Lane> {
        let count = self.lane_count();
        let mut lanes: Vec<Lane> = (0..count).map(|number| Lane::new(self, number)).collect();
        let agents: Vec<usize> = (0..self.streams).step_by(STREAMS_OF_AGENT).collect();
        let share = agents.len().div_ceil(DECLARING_THREADS).max(1);
        let streams: Vec<Stream> = thread::scope(|scope| {
            let threads: Vec<_> = agents
                .chunks(share)
                .map(|firsts| scope.spawn(|| self.declare(firsts)))
                .collect();
            threads.into_iter().flat_map(join).collect()
        });
        for (number, stream) in streams.into_iter().enumerate() {
            lanes[number % count].streams.push(stream);
        }
        lanes
    }

    /// Declares the streams of the agents with these first streams, and requests the next sequence
    /// of each.
    fn declare(&self, firsts: &[usize]) -> Vec<Stream> {
        let mut api = Api::new(Connection::open(self.address).expect("a ready server accepts"));
        let mut streams = Vec::new();
        for &first in firsts {
            let agent = format!("load-{}-{first}", self.body.kind());
            Agent::register(&mut api, &agent);
            for number in first..self.streams.min(first + STREAMS_OF_AGENT) {
                let name = format!("load-{number}");
                let (kind, codec) = (self.body.kind(), self.codec);
                Agent::declare_stream(&mut api, &agent, &name, kind, codec);
                let stream = Agent::new(&self.storage, &agent, &name);
                let next = stream.next_sequence(&mut api);
                streams.push(Stream::new(self.body, &stream, next));
            }
        }
        streams
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .expect("a panic of the thread is printed above")
}

struct LaneReport {
    packets: u64,
    bytes: u64,
    latencies: Vec<u32>,
}

/// A connection, its streams, and the bodies that they send.
struct Lane {
    number: usize,
    bodies: Vec<PreparedBody>,
    streams: Vec<Stream>,
}

/// One stream.
struct Stream {
    head: Vec<u8>,
    is_batch: bool,
    next: u64,
}

impl Stream {
    fn new(body: Body, agent: &Agent, next: u64) -> Self {
        let is_batch = matches!(body, Body::Many(..));
        let kind = if is_batch {
            "vnd.tracehold.packets"
        } else {
            "octet-stream"
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/{kind}\r\n\
             tracehold-epoch: {}\r\n",
            agent.path(),
            agent.epoch,
        );
        Self {
            head: head.into_bytes(),
            is_batch,
            next,
        }
    }

    /// The head of the next request, without the empty line.
    fn head(&self, body: &PreparedBody) -> Vec<u8> {
        let mut head = self.head.clone();
        let length = body.bytes.len();
        write!(head, "content-length: {length}\r\n").expect("writing to a vector does not fail");
        if !self.is_batch {
            write!(head, "tracehold-sequence: {}\r\n", self.next)
                .expect("writing to a vector does not fail");
        }
        head
    }
}

impl Lane {
    fn new(load: &Load, number: usize) -> Self {
        let seed = u64::try_from(number).expect("the number of connections is small");
        let bodies = (0..PAYLOAD_COUNT).map(|turn| PreparedBody::new(load.body, seed, turn));
        Self {
            number,
            bodies: bodies.collect(),
            streams: Vec::new(),
        }
    }

    fn run(mut self, load: &Load, begin: Instant) -> LaneReport {
        let mut line = Line::open(load.address).expect("a ready server accepts");
        let mut report = LaneReport {
            packets: 0,
            bytes: 0,
            latencies: Vec::new(),
        };
        for turn in 0_u32.. {
            let due = self.due(load, begin, turn);
            let now = Instant::now();
            if due.max(now).duration_since(begin) >= load.duration {
                break;
            }
            if let Some(wait) = due.checked_duration_since(now) {
                thread::sleep(wait);
            }
            let sent = if load.pace == Pace::Full { now } else { due };
            let (packets, bytes) = self.push(&mut line, turn);
            report.packets += packets;
            report.bytes += bytes;
            let micros = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
            report.latencies.push(micros);
        }
        report
    }

    /// When the request of this turn is to be sent; connections are spread over one interval.
    fn due(&self, load: &Load, begin: Instant, turn: u32) -> Instant {
        let Pace::PerSecond(rate) = load.pace else {
            return begin;
        };
        let small = |count| f64::from(u32::try_from(count).expect("connections are few"));
        let lanes = small(load.lane_count());
        let interval = lanes / rate;
        begin + Duration::from_secs_f64(interval * (f64::from(turn) + small(self.number) / lanes))
    }

    fn push(&mut self, line: &mut Line, turn: u32) -> (u64, u64) {
        let at = usize::try_from(turn).expect("an index fits") % self.streams.len();
        let stream = &mut self.streams[at];
        let payload = usize::try_from(u64::from(turn) % PAYLOAD_COUNT).expect("a small number");
        let body = &mut self.bodies[payload];
        body.number_from(stream.next);
        let mut head = stream.head(body);
        head.extend_from_slice(b"\r\n");
        let status = line
            .exchange(&head, &body.bytes)
            .expect("the server answers");
        if status != 200 {
            panic!("a push got the response {status}: {}", line.answer_text());
        }
        stream.next += body.packets;
        (body.packets, body.payload_bytes)
    }
}

/// A body whose sequences are filled in before it is sent.
struct PreparedBody {
    bytes: Vec<u8>,
    /// The offsets of the sequences in a batch.
    sequences: Vec<usize>,
    /// How far the events of two packets are apart, if they have times.
    apart: Option<Duration>,
    packets: u64,
    payload_bytes: u64,
}

impl PreparedBody {
    fn new(body: Body, stream: u64, turn: u64) -> Self {
        let (length, count) = match body {
            Body::One(length) => {
                let bytes = payload(stream, turn, length);
                let payload_bytes = bytes.len() as u64;
                return Self {
                    bytes,
                    sequences: Vec::new(),
                    apart: None,
                    packets: 1,
                    payload_bytes,
                };
            }
            Body::Timed(length, apart) => {
                let bytes = event(length);
                let payload_bytes = bytes.len() as u64;
                return Self {
                    bytes,
                    sequences: Vec::new(),
                    apart: Some(apart),
                    packets: 1,
                    payload_bytes,
                };
            }
            Body::Many(length, count) => (length, count as u64),
        };
        let mut prepared = Self {
            bytes: Vec::new(),
            sequences: Vec::new(),
            apart: None,
            packets: count,
            payload_bytes: 0,
        };
        for packet in 0..count {
            let packet = payload(stream, turn * count + packet, length);
            // The sequence is the last of the four fields of a header.
            prepared.sequences.push(prepared.bytes.len() + 16);
            prepared
                .bytes
                .extend_from_slice(&batch_header(&packet, 1, 0));
            prepared.bytes.extend_from_slice(&packet);
            prepared.payload_bytes += packet.len() as u64;
        }
        prepared
    }

    fn number_from(&mut self, first: u64) {
        for (sequence, &at) in (first..).zip(&self.sequences) {
            self.bytes[at..at + 8].copy_from_slice(&sequence.to_le_bytes());
        }
        if let Some(apart) = self.apart {
            let micros = u64::try_from(apart.as_micros()).unwrap_or(u64::MAX);
            // A number in JSON has no leading zeros, but spaces may precede it.
            let time = format!("{:>TIME_LENGTH$}", micros.saturating_mul(first));
            self.bytes[EVENT_HEAD.len()..][..TIME_LENGTH].copy_from_slice(time.as_bytes());
        }
    }
}

/// An event of the DFTracer format up to its time, the place of the time, and the rest.
const EVENT_HEAD: &[u8] =
    b"{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":";
const TIME_LENGTH: usize = 20;
const EVENT_TAIL: &[u8] = b",\"dur\":5,\"ph\":\"X\"}\n";

/// A packet with one event, filled up with spaces.
fn event(length: usize) -> Vec<u8> {
    let used = EVENT_HEAD.len() + TIME_LENGTH + EVENT_TAIL.len();
    let spaces = vec![b' '; length.saturating_sub(used)];
    [EVENT_HEAD, &[b'0'; TIME_LENGTH], &spaces, EVENT_TAIL].concat()
}

/// A connection that reads responses into one buffer and parses only their framing.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Line {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            stream,
            buffer: vec![0; 16 * 1024],
            filled: 0,
        })
    }

    /// Sends a request and returns the status of the response, which stays in the buffer.
    fn exchange(&mut self, head: &[u8], body: &[u8]) -> io::Result<u16> {
        let mut slices = [IoSlice::new(head), IoSlice::new(body)];
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let count = self.stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, count);
        }
        self.filled = 0;
        let mut complete = None;
        while complete.is_none_or(|complete| self.filled < complete) {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            let count = self.stream.read(&mut self.buffer[self.filled..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.filled += count;
            complete = complete.or_else(|| answer_length(&self.buffer[..self.filled]));
        }
        let status = std::str::from_utf8(&self.buffer[9..12]).ok();
        status
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn answer_text(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.filled]).into_owned()
    }
}

/// The length of a response including its head, once the head is complete.
fn answer_length(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|seen| seen == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let length = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().ok())?
        });
    Some(head + length.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_ranked() {
        let latencies = (1..=100).map(|ms| ms * 1000).collect();
        let report = LoadReport {
            packets: 0,
            bytes: 0,
            seconds: 1.0,
            generator_cpu: 0.0,
            latencies,
        };
        assert_eq!(report.latency_ms(0.5), 50.0);
        assert_eq!(report.latency_ms(0.99), 99.0);
        assert_eq!(report.latency_ms(1.0), 100.0);
    }

    #[test]
    fn a_batch_is_numbered_before_it_is_sent() {
        let mut body = PreparedBody::new(Body::Many(10, 3), 1, 0);
        body.number_from(7);
        assert_eq!(
            (body.bytes.len(), body.packets, body.payload_bytes),
            (3 * 34, 3, 30)
        );
        let sequence = |packet: usize| body.bytes[packet * 34 + 16];
        assert_eq!([sequence(0), sequence(1), sequence(2)], [7, 8, 9]);
    }

    #[test]
    fn an_event_has_the_time_of_its_sequence() {
        let mut body = PreparedBody::new(Body::Timed(200, Duration::from_secs(1)), 1, 0);
        for sequence in [0, 7, 12_345] {
            body.number_from(sequence);
            let event: serde_json::Value = serde_json::from_slice(&body.bytes).unwrap();
            assert_eq!(event["ts"], sequence * 1_000_000);
            assert_eq!((body.bytes.len(), body.payload_bytes), (200, 200));
        }
    }

    #[test]
    fn the_head_determines_the_length_of_a_response() {
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Le"), None);
        assert_eq!(
            answer_length(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
            Some(43)
        );
    }
}
