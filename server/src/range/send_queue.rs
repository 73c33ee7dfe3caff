//! File bytes that the kernel sends (`sendfile`) without a copy through this process.
//!
//! hyper only supports bodies of bytes in memory. A body that has file bytes to send adds them to
//! the queue of its connection and passes hyper a *stand-in*: a slice of the same length of a
//! static buffer. hyper queues slices of a response without copying them, in the order of the body.
//! The stream below recognizes stand-ins by their address and sends the queued file bytes instead.
//! Any mismatch closes the connection: a client may miss bytes, but never receives wrong ones.
//!
//! Requests on plain TCP connections find the queue in their extensions.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use io_trace::Scope;
use parking_lot::Mutex;

use super::file::RangeFile;

/// Maximum length of a stand-in.
pub(super) const STAND_IN_BYTES_MAX: usize = 256 << 10;

/// The buffer that stand-ins are slices of; never read.
static STAND_IN: [u8; STAND_IN_BYTES_MAX] = [0; STAND_IN_BYTES_MAX];

/// A range of a file to send.
#[derive(Debug)]
struct FileSlice {
    file: Arc<RangeFile>,
    offset: u64,
    left: usize,
    /// The scope that the bytes are sent for.
    scope: Option<Scope>,
}

/// The file bytes of one connection, in the order of its responses.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    slices: Mutex<VecDeque<FileSlice>>,
}

impl SendQueue {
    /// Queues `length` bytes of `file` at `offset`, at most [`STAND_IN_BYTES_MAX`], and returns
    /// their stand-in, which must be the next slice sent on this connection, unmodified.
    pub(crate) fn stand_in(
        &self,
        file: &Arc<RangeFile>,
        offset: u64,
        length: usize,
        scope: &Option<Scope>,
    ) -> Bytes {
        let left = length.min(STAND_IN_BYTES_MAX);
        self.slices.lock().push_back(FileSlice {
            file: Arc::clone(file),
            offset,
            left,
            scope: scope.clone(),
        });
        Bytes::from_static(&STAND_IN[..left])
    }

    /// Sends file bytes for `slice`, a stand-in or the rest of one. Like a write, it may send only
    /// part of them.
    pub(crate) fn send(&self, socket: impl AsFd, slice: &[u8]) -> io::Result<usize> {
        let mut slices = self.slices.lock();
        let Some(next) = slices.front_mut().filter(|next| next.left == slice.len()) else {
            return Err(io::Error::other(
                "a stand-in does not match the next file bytes",
            ));
        };
        let _inside = next.scope.clone().map(Scope::enter);
        let sent = next.file.send(socket, next.offset, next.left)?;
        if sent < next.left {
            next.offset += sent as u64;
            next.left -= sent;
        } else {
            slices.pop_front();
        }
        Ok(sent)
    }
}

/// Whether `slice` is a stand-in for file bytes.
pub(crate) fn is_stand_in(slice: &[u8]) -> bool {
    STAND_IN.as_ptr_range().contains(&slice.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sends its own file")]
    fn file_bytes_replace_their_stand_ins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let file = Arc::new(RangeFile::untraced(file));
        let (near, mut far) = UnixStream::pair().unwrap();
        let queue = SendQueue::default();
        let one = queue.stand_in(&file, 2, 3, &None);
        let other = queue.stand_in(&file, 8, 1, &None);
        assert!(is_stand_in(&one) && is_stand_in(&other) && !is_stand_in(b"01234"));
        assert!(queue.send(&near, &other).is_err(), "not its turn");
        assert_eq!(queue.send(&near, &one).unwrap(), 3);
        assert_eq!(queue.send(&near, &other).unwrap(), 1);
        assert!(queue.send(&near, &other).is_err(), "nothing is left");
        let beyond = queue.stand_in(&file, 10, 4, &None);
        let error = queue.send(&near, &beyond).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        drop(near);
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, "2348");
    }
}
