//! The part of a trace in a window of time, as a trace.
//!
//! The metadata and every packet of which all events are in the window are copied as they are. Of
//! the other packets, events are moved to where they are without those outside of the window, and
//! the lengths and times in the packet context are adjusted; the result is read again before it is
//! written. Packets that cannot have events in the window are skipped.

mod bits;
mod packet;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{FolderError, FolderFault, OnFault};
use crate::folder::TraceFolder;
use crate::stream::{PacketEntry, TraceStream};
use crate::time_window::TimeWindow;
pub use packet::TrimFault;
use packet::{Trimmed, trim};

/// What was written.
#[derive(Debug, Default)]
pub struct TrimSummary {
    /// Packets that were copied as they are.
    pub whole: u64,
    /// Packets of which some events were written.
    pub trimmed: u64,
    /// Packets that cannot be decoded and were skipped.
    pub faults: Vec<FolderError>,
}

/// Writes the part of `trace` in `window` into the new folder `target`.
///
/// # Errors
/// When a file cannot be read or written, `target` exists and is not empty, or a packet cannot be
/// trimmed. With [`OnFault::Skip`], packets that cannot be decoded are skipped instead.
pub fn write_trimmed(
    trace: &TraceFolder,
    window: TimeWindow,
    on_fault: OnFault,
    target: &Path,
) -> Result<TrimSummary, FolderError> {
    let created = |error| FolderError::io(target, error);
    fs::create_dir_all(target).map_err(created)?;
    if fs::read_dir(target).map_err(created)?.next().is_some() {
        let exists = std::io::Error::from(std::io::ErrorKind::DirectoryNotEmpty);
        return Err(FolderError::io(target, exists));
    }
    let mut summary = TrimSummary::default();
    for stream in &trace.streams {
        write_stream(trace, stream, window, on_fault, target, &mut summary)?;
    }
    // A folder without metadata is no trace: it comes last.
    let metadata = trace.path.join("metadata");
    let bytes = fs::read(&metadata).map_err(|error| FolderError::io(&metadata, error))?;
    let path = target.join("metadata");
    fs::write(&path, bytes).map_err(|error| FolderError::io(&path, error))?;
    Ok(summary)
}

fn write_stream(
    trace: &TraceFolder,
    stream: &TraceStream,
    window: TimeWindow,
    on_fault: OnFault,
    target: &Path,
    summary: &mut TrimSummary,
) -> Result<(), FolderError> {
    for (number, file) in stream.files.iter().enumerate() {
        let packets = stream.packets.iter();
        let mut packets: Vec<&PacketEntry> = packets
            .filter(|packet| packet.file == number && window.overlaps(packet))
            .collect();
        packets.sort_by_key(|packet| packet.offset);
        let source = File::open(&file.path).map_err(|error| FolderError::io(&file.path, error))?;
        let name = file.path.file_name().unwrap_or_default();
        let mut output = Output::new(target.join(name));
        for packet in packets {
            let mut data = vec![0; usize::try_from(packet.length).unwrap_or(usize::MAX)];
            let read = source.read_exact_at(&mut data, packet.offset);
            read.map_err(|error| FolderError::io(&file.path, error))?;
            let clock = trace.plan.clock(stream.class);
            let is_kept = |cycles: Option<u64>| {
                // Without a timestamp, the clock is at zero.
                window.contains(clock.and_then(|clock| clock.nanoseconds(cycles.unwrap_or(0))))
            };
            let offset = packet.offset;
            let failed = |error| FolderError::new(&file.path, FolderFault::Trim { offset, error });
            match trim(trace.plan.procedure(), &data, &is_kept) {
                Ok(Trimmed::Whole) => {
                    summary.whole += 1;
                    output.write(&data)?;
                }
                Ok(Trimmed::Part(part)) => {
                    summary.trimmed += 1;
                    output.write(&part)?;
                }
                Err(error @ TrimFault::Decode(_)) if on_fault == OnFault::Skip => {
                    summary.faults.push(failed(error));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        output.finish()?;
    }
    Ok(())
}

/// A file that is created with its first packet.
struct Output {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Output {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn write(&mut self, packet: &[u8]) -> Result<(), FolderError> {
        let failed = |error| FolderError::io(&self.path, error);
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let created = File::create_new(&self.path).map_err(failed)?;
                self.file.insert(BufWriter::new(created))
            }
        };
        file.write_all(packet).map_err(failed)
    }

    fn finish(self) -> Result<(), FolderError> {
        let Some(mut file) = self.file else {
            return Ok(());
        };
        file.flush()
            .map_err(|error| FolderError::io(&self.path, error))
    }
}
