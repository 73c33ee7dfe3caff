//! HTTP/1.1 over a plain socket, written from the RFC without a client library; HTTP/2 on request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::http2::Http2;

/// A server that takes longer than this to respond is considered hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

/// One request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<(&'a str, String)>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request without a body.
    pub fn new(method: &'a str, path: &'a str) -> Self {
        Self {
            method,
            path,
            headers: Vec::new(),
            body: &[],
        }
    }

    /// The same request with one more header.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// The same request with a body.
    #[must_use]
    pub fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// The head as HTTP/2 sends it.
    fn http2_head(&self, address: SocketAddr) -> io::Result<http::Request<()>> {
        let target = format!("http://{address}{}", self.path);
        let mut head = http::Request::builder().method(self.method).uri(target);
        for (name, value) in &self.headers {
            // HTTP/2 has no fields about the connection.
            if !name.eq_ignore_ascii_case("connection") {
                head = head.header(*name, value);
            }
        }
        if !self.body.is_empty() {
            head = head.header("content-length", self.body.len());
        }
        head.body(())
            .map_err(|_| malformed("the request cannot be sent with HTTP/2"))
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method, "POST" | "PUT" | "PATCH") {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// One complete response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, values as sent.
    pub headers: Vec<(String, String)>,
    /// The body; chunks are joined.
    pub body: Vec<u8>,
    /// The fields after a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Response {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first trailer field of this name (in lower case).
    pub fn trailer(&self, name: &str) -> Option<&str> {
        let field = self.trailers.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("no JSON ({error}) in {}", self.brief()),
        }
    }

    /// Status, headers and the beginning of the body, for messages.
    pub fn brief(&self) -> String {
        let end = self.body.len().min(2000);
        let text = String::from_utf8_lossy(&self.body[..end]);
        format!("{} {:?} {text}", self.status, self.headers)
    }
}

/// If this variable is set, complete requests are sent with HTTP/2.
const HTTP2_VARIABLE: &str = "TESTS_OVER_HTTP2";

/// A connection that is kept alive.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    /// Sends complete requests instead of `stream`.
    http2: Option<Http2>,
    stream: TcpStream,
    /// Bytes read so far; those before `begin` are consumed.
    buffer: Vec<u8>,
    begin: usize,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If nothing listens on the address.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let is_http2 = std::env::var_os(HTTP2_VARIABLE).is_some();
        let http2 = is_http2.then(|| Http2::open(address, PATIENCE));
        Ok(Self {
            address,
            http2: http2.transpose()?,
            stream,
            buffer: Vec::new(),
            begin: 0,
        })
    }

    /// Connects, and sends complete requests with HTTP/2.
    ///
    /// # Errors
    /// If nothing listens on the address.
    pub fn open_http2(address: SocketAddr) -> io::Result<Self> {
        let mut connection = Self::open(address)?;
        connection.http2 = Some(Http2::open(address, PATIENCE)?);
        Ok(connection)
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// If the connection breaks, or the response is not HTTP.
    pub fn send(&mut self, request: &Request<'_>) -> io::Result<Response> {
        if let Some(http2) = &mut self.http2 {
            let head = request.http2_head(self.address)?;
            let received = http2.send(head, request.body, PATIENCE)?;
            return Ok(Response {
                status: received.status,
                headers: received.headers,
                body: received.body,
                trailers: received.trailers,
            });
        }
        self.write(&[&request.head(), request.body])?;
        self.read_response(request.method == "HEAD")
    }

    /// Writes bytes as they are, in one piece if the kernel accepts that.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn write(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<io::IoSlice<'_>> =
            pieces.iter().map(|piece| io::IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        // Skip empty slices: writing nothing looks like a closed connection.
        io::IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => io::IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A second handle, with which another thread closes the connection.
    pub(crate) fn closer(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Shuts down the writing side.
    ///
    /// # Errors
    /// If the connection is already closed.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Reads the interim response to `expect: 100-continue`.
    ///
    /// # Errors
    /// If the connection breaks, or another response arrives.
    pub fn read_continue(&mut self) -> io::Result<()> {
        let head_end = self.read_until(b"\r\n\r\n")?;
        let (status, _) = parse_head(&self.buffer[self.begin..head_end])?;
        self.begin = head_end;
        if status == 100 {
            Ok(())
        } else {
            Err(malformed("the body is not wanted"))
        }
    }

    /// Reads one complete response.
    ///
    /// # Errors
    /// If the connection breaks, or the response is not HTTP.
    pub fn read_response(&mut self, without_body: bool) -> io::Result<Response> {
        loop {
            let head_end = self.read_until(b"\r\n\r\n")?;
            let (status, headers) = parse_head(&self.buffer[self.begin..head_end])?;
            self.begin = head_end;
            // Interim responses (100 Continue) precede the response.
            if (100..200).contains(&status) {
                continue;
            }
            let mut response = Response {
                status,
                headers,
                body: Vec::new(),
                trailers: Vec::new(),
            };
            if !without_body && status != 204 && status != 304 {
                self.read_body(&mut response)?;
            }
            return Ok(response);
        }
    }

    fn read_body(&mut self, response: &mut Response) -> io::Result<()> {
        if response
            .header("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"))
        {
            return self.read_chunks(response);
        }
        response.body = match response.header("content-length") {
            Some(length) => {
                let length = length
                    .parse()
                    .map_err(|_| malformed("content-length is not a number"))?;
                self.consume(length)?
            }
            None => {
                let mut body = self.buffer.split_off(self.begin);
                self.stream.read_to_end(&mut body)?;
                body
            }
        };
        Ok(())
    }

    fn read_chunks(&mut self, response: &mut Response) -> io::Result<()> {
        loop {
            let line_end = self.read_until(b"\r\n")?;
            let line = String::from_utf8_lossy(&self.buffer[self.begin..line_end - 2]).into_owned();
            self.begin = line_end;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| malformed("malformed chunk size"))?;
            if size == 0 {
                response.trailers = self.read_trailers()?;
                return Ok(());
            }
            let chunk = self.consume(size)?;
            if self.consume(2)? != b"\r\n" {
                return Err(malformed("no line end after a chunk"));
            }
            response.body.extend_from_slice(&chunk);
        }
    }

    fn read_trailers(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut trailers = Vec::new();
        loop {
            let line_end = self.read_until(b"\r\n")?;
            let line = String::from_utf8_lossy(&self.buffer[self.begin..line_end - 2]).into_owned();
            self.begin = line_end;
            match line.split_once(':') {
                Some((name, value)) => {
                    trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => return Ok(trailers),
            }
        }
    }

    /// Consumes exactly this many bytes.
    fn consume(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let buffered = (self.buffer.len() - self.begin).min(length);
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&self.buffer[self.begin..self.begin + buffered]);
        self.begin += buffered;
        bytes.resize(length, 0);
        self.stream.read_exact(&mut bytes[buffered..])?;
        Ok(bytes)
    }

    /// Reads until the mark is found and returns the position after it.
    fn read_until(&mut self, mark: &[u8]) -> io::Result<usize> {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..]
                .windows(mark.len())
                .position(|seen| seen == mark);
            if let Some(offset) = found {
                return Ok(searched + offset + mark.len());
            }
            searched = self.buffer.len().saturating_sub(mark.len() - 1);
            let filled = self.buffer.len();
            self.buffer.resize(filled + READ_BYTES, 0);
            let count = self.stream.read(&mut self.buffer[filled..]);
            self.buffer
                .truncate(filled + count.as_ref().copied().unwrap_or(0));
            match count {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // The process was suspended for a moment.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => drop(count?),
            }
        }
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

type Head = (u16, Vec<(String, String)>);

fn parse_head(head: &[u8]) -> io::Result<Head> {
    let text = std::str::from_utf8(head).map_err(|_| malformed("the head is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| {
            line.strip_prefix("HTTP/1.1 ")
                .or(line.strip_prefix("HTTP/1.0 "))
        })
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(|| malformed("no status line"))?;
    let headers = lines.filter(|line| !line.is_empty()).map(|line| {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| malformed("a header without colon"))?;
        Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Ok((status, headers.collect::<io::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn check(answer: &'static [u8], expected_status: u16, expected_body: &[u8]) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            // Byte by byte, so that the response is split at every position.
            for byte in answer {
                stream.write_all(&[*byte]).unwrap();
            }
            String::from_utf8(request[..count].to_vec()).unwrap()
        });
        let mut connection = Connection::open(address).unwrap();
        let response = connection.send(&Request::new("GET", "/a").header("range", "bytes=0-"));
        let response = response.unwrap();
        assert_eq!(
            (response.status, response.body.as_slice()),
            (expected_status, expected_body)
        );
        let request = server.join().unwrap();
        assert_eq!(
            request,
            "GET /a HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-\r\n\r\n"
        );
    }

    #[test]
    fn bodies_of_every_framing_are_read() {
        check(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            200,
            b"abc",
        );
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                        2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        check(chunked, 200, b"abc");
        check(b"HTTP/1.1 200 OK\r\n\r\nabc", 200, b"abc");
        check(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            204,
            b"",
        );
    }
}
