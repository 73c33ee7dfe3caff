//! What carries the bytes of a connection: TCP, with file bytes sent by the kernel, or TLS over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::range::{SendQueue, is_stand_in};
use crate::tls::Encrypted;

/// The carrier of a connection.
pub(super) enum Transport {
    /// Bytes as they are.
    Plain(TcpStream),
    /// TLS; requests on it must not find a [`SendQueue`], because the kernel cannot encrypt.
    Tls(Box<Encrypted>),
}

impl Transport {
    /// Whether the client has sent bytes that were not read.
    pub(super) fn has_unread(&self) -> bool {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        };
        // The kernel is asked: the runtime may not have been told yet.
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(tcp, &mut [0; 1], flags).is_ok_and(|(_, count)| count > 0)
    }

    /// Sends the first of `slices`, or the leading ones of the same source: memory, or a file.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        files: &SendQueue,
    ) -> Poll<io::Result<usize>> {
        let stand_in = slices.iter().position(|slice| is_stand_in(slice));
        match (self, stand_in) {
            (Self::Plain(tcp), None) => Pin::new(tcp).poll_write_vectored(cx, slices),
            (Self::Plain(tcp), Some(0)) => poll_call(tcp, cx, |tcp| files.send(tcp, &slices[0])),
            // The head of a response waits for the file bytes that follow, so that they are
            // sent together.
            (Self::Plain(tcp), Some(count)) => poll_call(tcp, cx, |tcp| {
                let mut control = SendAncillaryBuffer::default();
                let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                Ok(sendmsg(tcp, &slices[..count], &mut control, flags)?)
            }),
            (Self::Tls(tls), None) => Pin::new(tls).poll_write_vectored(cx, slices),
            (Self::Tls(_), Some(_)) => Poll::Ready(Err(io::Error::other(
                "file bytes for the kernel to send on a connection that is encrypted",
            ))),
        }
    }

    /// Reads what the client sent, still encrypted on TLS, after the connection was shut down.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_mut().0,
        };
        Pin::new(tcp).poll_read(cx, scratch)
    }

    /// Reads at most `bytes_max` bytes.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        bytes_max: usize,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() <= bytes_max {
            return match self {
                Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
                Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
            };
        }
        let mut limited = buffer.limit(bytes_max);
        let read = match self {
            Self::Plain(tcp) => poll_read_buf(Pin::new(tcp), cx, &mut limited),
            Self::Tls(tls) => poll_read_buf(Pin::new(tls), cx, &mut limited),
        };
        read.map_ok(|_| ())
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    pub(super) fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

/// Retries a non-blocking call until the socket accepts it.
fn poll_call(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    call: impl Fn(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(tcp.poll_write_ready(cx))?;
        match tcp.try_io(Interest::WRITABLE, || call(tcp)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return Poll::Ready(outcome),
        }
    }
}
