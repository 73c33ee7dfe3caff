//! A proxy before an object store that delays, refuses, cuts, and drops answers after their
//! requests took effect. It understands as much of HTTP/1.1 as a client of S3 sends.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It is answered with this status, and does not reach the store.
    Refuse(u16),
    /// It takes effect, and the connection is closed in place of an answer.
    DropAnswer,
    /// The connection is closed in the middle of the answer's body.
    CutAnswer,
    /// It does not reach the store, and the connection is closed.
    DropRequest,
}

#[derive(Debug, Default)]
struct Behaviour {
    /// For the next requests that match the text in method and path.
    faults: Mutex<VecDeque<(String, StoreFault)>>,
    delay_milliseconds: AtomicU64,
    is_down: AtomicBool,
    /// Requests whose `METHOD path` contains this get nowhere, but for so many.
    held: Mutex<Option<(String, u32)>>,
    requests: AtomicU64,
    /// Bytes of the bodies that the store sent.
    bytes: AtomicU64,
}

/// A proxy. It ends with the test.
#[derive(Debug)]
pub struct StoreProxy {
    address: SocketAddr,
    behaviour: Arc<Behaviour>,
}

impl StoreProxy {
    /// Starts a proxy before the store at `store`.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let behaviour = Arc::<Behaviour>::default();
        let shared = Arc::clone(&behaviour);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let behaviour = Arc::clone(&shared);
                thread::spawn(move || {
                    // The test sees what the client of the store makes of it.
                    let _ = serve(&client, store, &behaviour);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, behaviour }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets the next request whose `METHOD path` contains `what` fail like this.
    ///
    /// # Panics
    /// Never, unless another thread of it panicked.
    pub fn fail(&self, what: &str, fault: StoreFault) {
        let mut faults = self.behaviour.faults.lock().expect("no thread panics");
        faults.push_back((what.to_owned(), fault));
    }

    /// The faults that have not happened.
    ///
    /// # Panics
    /// Never, unless another thread of it panicked.
    pub fn faults_left(&self) -> usize {
        self.behaviour
            .faults
            .lock()
            .expect("no thread panics")
            .len()
    }

    /// Adds a delay to each request.
    pub fn delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.behaviour
            .delay_milliseconds
            .store(milliseconds, Ordering::SeqCst);
    }

    /// Whether connections are closed without an answer.
    ///
    /// # Panics
    /// Never, unless another thread of it panicked.
    pub fn set_down(&self, is_down: bool) {
        *self.behaviour.held.lock().expect("no thread panics") = None;
        self.behaviour.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Lets `passes` requests through whose `METHOD path` contains `what`, and holds the others
    /// until it is down, for once.
    ///
    /// # Panics
    /// Never, unless another thread of it panicked.
    pub fn hold_after(&self, passes: u32, what: &str) {
        let mut held = self.behaviour.held.lock().expect("no thread panics");
        *held = Some((what.to_owned(), passes));
    }

    /// Requests so far, and bytes of the bodies of their answers.
    pub fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (of(&self.behaviour.requests), of(&self.behaviour.bytes))
    }
}

/// The head of a message, and how long its body is.
struct Head {
    bytes: Vec<u8>,
    first_line: String,
    length: Option<u64>,
    is_chunked: bool,
    expects_continue: bool,
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut head = Head {
        bytes: Vec::new(),
        first_line: String::new(),
        length: None,
        is_chunked: false,
        expects_continue: false,
    };
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        head.bytes.extend_from_slice(&line);
        let text = String::from_utf8_lossy(&line)
            .trim_end()
            .to_ascii_lowercase();
        if head.first_line.is_empty() {
            String::from_utf8_lossy(&line)
                .trim_end()
                .clone_into(&mut head.first_line);
        } else if text.is_empty() {
            return Ok(Some(head));
        } else if let Some(length) = text.strip_prefix("content-length:") {
            head.length = length.trim().parse().ok();
        } else if text.starts_with("transfer-encoding:") {
            head.is_chunked = text.contains("chunked");
        } else if text.starts_with("expect:") {
            head.expects_continue = true;
        }
    }
}

/// Passes a body on; returns its bytes.
fn pass_body(head: &Head, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<u64> {
    if !head.is_chunked {
        let length = head.length.unwrap_or(0);
        return io::copy(&mut from.take(length), to);
    }
    let mut bytes = 0;
    loop {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        let size = text.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        bytes += io::copy(&mut from.take(size + 2), to)?;
        if size == 0 {
            return Ok(bytes);
        }
    }
}

fn serve(client: &TcpStream, store: SocketAddr, behaviour: &Behaviour) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut requests = BufReader::new(client.try_clone()?);
    let mut answers = client.try_clone()?;
    let server = TcpStream::connect(store)?;
    server.set_nodelay(true)?;
    let mut from_store = BufReader::new(server.try_clone()?);
    let mut to_store = server;
    while let Some(request) = read_head(&mut requests)? {
        behaviour.requests.fetch_add(1, Ordering::SeqCst);
        let delay = behaviour.delay_milliseconds.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(delay));
        if is_held(behaviour, &request.first_line) {
            while !behaviour.is_down.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if behaviour.is_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        let fault = fault_for(behaviour, &request.first_line);
        match fault {
            Some(StoreFault::DropRequest) => return Ok(()),
            Some(StoreFault::Refuse(status)) => {
                pass_body(&request, &mut requests, &mut io::sink())?;
                let code = if status == 503 {
                    "SlowDown"
                } else {
                    "OperationAborted"
                };
                let body = format!("<Error><Code>{code}</Code></Error>");
                write!(
                    answers,
                    "HTTP/1.1 {status} Fault\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )?;
                continue;
            }
            _ => {}
        }
        to_store.write_all(&request.bytes)?;
        if request.expects_continue {
            answers.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        pass_body(&request, &mut requests, &mut to_store)?;
        let Some(answer) = final_head(&mut from_store)? else {
            return Ok(());
        };
        if fault == Some(StoreFault::DropAnswer) {
            return Ok(());
        }
        let has_body = !request.first_line.starts_with("HEAD ")
            && !answer.first_line.contains(" 204 ")
            && !answer.first_line.contains(" 304 ");
        answers.write_all(&answer.bytes)?;
        if has_body && fault == Some(StoreFault::CutAnswer) {
            let half = answer.length.unwrap_or(0) / 2;
            io::copy(&mut (&mut from_store).take(half), &mut answers)?;
            return Ok(());
        }
        if has_body {
            let passed = pass_body(&answer, &mut from_store, &mut answers)?;
            behaviour.bytes.fetch_add(passed, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// The head of an answer behind those that say that one will come.
fn final_head(from_store: &mut impl BufRead) -> io::Result<Option<Head>> {
    loop {
        match read_head(from_store)? {
            Some(head) if head.first_line.contains(" 100 ") => {}
            head => return Ok(head),
        }
    }
}

fn is_held(behaviour: &Behaviour, first_line: &str) -> bool {
    let mut held = behaviour.held.lock().expect("no thread panics");
    let Some((what, passes)) = &mut *held else {
        return false;
    };
    if !first_line.contains(what.as_str()) {
        return false;
    }
    let is_held = *passes == 0;
    *passes = passes.saturating_sub(1);
    is_held
}

fn fault_for(behaviour: &Behaviour, first_line: &str) -> Option<StoreFault> {
    let mut faults = behaviour.faults.lock().ok()?;
    let at = faults
        .iter()
        .position(|(what, _)| first_line.contains(what.as_str()))?;
    faults.remove(at).map(|(_, fault)| fault)
}
