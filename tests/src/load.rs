//! A load of pushes that uses little CPU itself: one thread and one kept-alive connection per
//! stream, bodies prepared in advance, and only the status of each response is checked.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::{Agent, batch_header};
use crate::api::Api;
use crate::http::Connection;
use crate::payload::payload;

/// The number of different packets that a stream sends in turn, so that caches do not always see
/// the same bytes.
const PAYLOAD_COUNT: u64 = 8;

/// The content of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// One packet of this many bytes.
    One(usize),
    /// Many packets: bytes of each, packets in a request.
    Many(usize, usize),
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
    /// Streams, with one connection each.
    pub streams: usize,
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
    /// Microseconds from a request to its response, ascending.
    pub latencies: Vec<u32>,
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

impl Load {
    /// Runs the load to the end.
    ///
    /// # Panics
    /// If the server refuses a packet or closes a connection.
    pub fn run(&self) -> LoadReport {
        let streams: Vec<Stream> = (0..self.streams)
            .map(|number| self.stream(number))
            .collect();
        let begin = Instant::now();
        let reports: Vec<StreamReport> = thread::scope(|scope| {
            let spawn = |stream: Stream| scope.spawn(move || stream.run(self, begin));
            let threads: Vec<_> = streams.into_iter().map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, StreamReport>| {
                thread
                    .join()
                    .expect("a panic of the thread is printed above")
            };
            threads.into_iter().map(join).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let mut latencies: Vec<u32> = reports
            .iter()
            .flat_map(|report| report.latencies.iter().copied())
            .collect();
        latencies.sort_unstable();
        LoadReport {
            packets: reports.iter().map(|report| report.packets).sum(),
            bytes: reports.iter().map(|report| report.bytes).sum(),
            seconds,
            latencies,
        }
    }

    /// Declares a stream and asks for its next sequence.
    fn stream(&self, number: usize) -> Stream {
        let mut api = Api::new(Connection::open(self.address).expect("a ready server accepts"));
        let name = format!("load-{number}");
        let agent = Agent::declare(&mut api, &self.storage, "load", &name, self.codec);
        let next = agent.next_sequence(&mut api);
        let number = u64::try_from(number).expect("the number of streams is small");
        Stream::new(self, &agent, number, next)
    }
}

struct StreamReport {
    packets: u64,
    bytes: u64,
    latencies: Vec<u32>,
}

/// One stream and its prepared requests.
struct Stream {
    number: usize,
    head: Vec<u8>,
    is_batch: bool,
    bodies: Vec<PreparedBody>,
    next: u64,
}

/// A body whose sequences are filled in before it is sent.
struct PreparedBody {
    bytes: Vec<u8>,
    /// The offsets of the sequences in a batch.
    sequences: Vec<usize>,
    packets: u64,
    payload_bytes: u64,
}

impl Stream {
    fn new(load: &Load, agent: &Agent, number: u64, next: u64) -> Self {
        let bodies: Vec<PreparedBody> = (0..PAYLOAD_COUNT)
            .map(|turn| PreparedBody::new(load.body, number, turn))
            .collect();
        let is_batch = matches!(load.body, Body::Many(..));
        let kind = if is_batch {
            "vnd.tracehold.packets"
        } else {
            "octet-stream"
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/{kind}\r\n\
             content-length: {}\r\ntracehold-epoch: {}\r\n",
            agent.path(),
            bodies[0].bytes.len(),
            agent.epoch,
        );
        let number = usize::try_from(number).expect("the number of streams is small");
        Self {
            number,
            head: head.into_bytes(),
            is_batch,
            bodies,
            next,
        }
    }

    fn run(mut self, load: &Load, begin: Instant) -> StreamReport {
        let mut line = Line::open(load.address).expect("a ready server accepts");
        let mut report = StreamReport {
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
            let (packets, bytes) = self.push(&mut line);
            report.packets += packets;
            report.bytes += bytes;
            let micros = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
            report.latencies.push(micros);
        }
        report
    }

    /// When the request of this turn is to be sent; streams are spread over one interval.
    fn due(&self, load: &Load, begin: Instant, turn: u32) -> Instant {
        let Pace::PerSecond(rate) = load.pace else {
            return begin;
        };
        let streams =
            f64::from(u32::try_from(load.streams).expect("the number of streams is small"));
        let index = f64::from(u32::try_from(self.number).expect("the number of streams is small"));
        let interval = streams / rate;
        begin + Duration::from_secs_f64(interval * (f64::from(turn) + index / streams))
    }

    fn push(&mut self, line: &mut Line) -> (u64, u64) {
        let mut head = self.head.clone();
        if !self.is_batch {
            write!(head, "tracehold-sequence: {}\r\n", self.next)
                .expect("writing to a vector does not fail");
        }
        head.extend_from_slice(b"\r\n");
        let turn = usize::try_from(self.next % PAYLOAD_COUNT).expect("a small number");
        let body = &mut self.bodies[turn];
        body.number_from(self.next);
        let status = line
            .exchange(&head, &body.bytes)
            .expect("the server answers");
        if status != 200 {
            panic!("a push got the response {status}: {}", line.answer_text());
        }
        self.next += body.packets;
        (body.packets, body.payload_bytes)
    }
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
                    packets: 1,
                    payload_bytes,
                };
            }
            Body::Many(length, count) => (length, count as u64),
        };
        let mut prepared = Self {
            bytes: Vec::new(),
            sequences: Vec::new(),
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
    }
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
    fn the_head_determines_the_length_of_a_response() {
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Le"), None);
        assert_eq!(
            answer_length(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
            Some(43)
        );
    }
}
