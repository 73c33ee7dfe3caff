//! Inputs that can be read only from their start: pipes, and files compressed with zstd. Their text
//! is copied into a temporary file without a name, which is read like any other file, without an
//! index.

use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use trace_kinds::{Container, Recognized};

use crate::file_content::{recognize_file, recognize_start};
use crate::spill::temporary_file;
use crate::{LocalFile, ReadError};

/// Bytes per read.
const BUFFER_BYTES: usize = 256 << 10;

/// A copy of an input.
pub(crate) struct Spooled {
    pub(crate) file: LocalFile,
    /// What the copy is.
    pub(crate) found: Recognized,
    /// Why the rest of the input could not be decompressed.
    pub(crate) fault: Option<String>,
}

/// Copies `path` if it is a FIFO or compressed with zstd; `None` otherwise.
///
/// # Errors
///
/// When it cannot be read or nothing of it can be decompressed, or there is no space for the copy.
pub(crate) fn spooled(path: &Path) -> Result<Option<Spooled>, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let file_type = fs::metadata(path).map_err(failed)?.file_type();
    let is_zstd_file = file_type.is_file() && recognize_file(path)?.container == Container::Zstd;
    if !file_type.is_fifo() && !is_zstd_file {
        return Ok(None);
    }
    let mut source = File::open(path).map_err(failed)?;
    let mut magic = Vec::new();
    let magic_read = Read::by_ref(&mut source).take(4).read_to_end(&mut magic);
    magic_read.map_err(failed)?;
    let is_zstd = Container::of(&magic) == Container::Zstd;
    let mut source = Cursor::new(magic).chain(source);
    let mut copy = temporary_file().map_err(ReadError::Spill)?;
    let mut fault = None;
    if is_zstd {
        let mut text = Container::Zstd.text_of(source).map_err(failed)?;
        let (length, error) = copy_all(&mut text, &mut copy)?;
        fault = error.map(|error| {
            let place = path.display();
            format!("{place}: it cannot be decompressed beyond byte {length} of its text: {error}")
        });
        if length == 0
            && let Some(reason) = fault.take()
        {
            let path = path.to_owned();
            return Err(ReadError::UnknownFile { path, reason });
        }
    } else if let (_, Some(error)) = copy_all(&mut source, &mut copy)? {
        return Err(failed(error));
    }
    let length = copy.stream_position().map_err(ReadError::Spill)?;
    copy.rewind().map_err(ReadError::Spill)?;
    let found = recognize_start(&mut copy, length).map_err(ReadError::Spill)?;
    Ok(Some(Spooled {
        found,
        file: LocalFile::named(path, copy),
        fault,
    }))
}

/// Copies until the end or the first error of `source`, which is returned with the bytes copied.
fn copy_all(
    source: &mut dyn Read,
    target: &mut File,
) -> Result<(u64, Option<io::Error>), ReadError> {
    let (mut buffer, mut length) = (vec![0; BUFFER_BYTES], 0_u64);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok((length, None)),
            Ok(read) => {
                let bytes = buffer.get(..read).unwrap_or_default();
                target.write_all(bytes).map_err(ReadError::Spill)?;
                length = length.saturating_add(bytes.len() as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok((length, Some(error))),
        }
    }
}
