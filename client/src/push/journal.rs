use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use trace_format::checksum::crc32c;

use crate::ClientError;
use crate::http::PushTarget;

/// Where the packets of a followed file begin that are not where cutting alone would put them.
///
/// A followed file is cut early whenever it pauses, which depends on time and not on its bytes.
/// Each such place is written down, and synced, before the packet is sent: `SEQUENCE OFFSET` on a
/// line says that this packet begins at this offset of the file. From a place on, cutting is
/// deterministic again up to the next one. Which packets arrived is known by the server alone.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

/// Where to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Sequence of the packet that begins at the offset.
    pub(super) sequence: u64,
    /// Offset in the file.
    pub(super) offset: u64,
}

const START: Place = Place {
    sequence: 0,
    offset: 0,
};

impl Journal {
    /// Opens the journal of a file pushed to `target` under `epoch`, and gives the place from which
    /// packet `next` is reached by cutting. Later places, of packets that never arrived, are
    /// forgotten.
    pub(super) fn open(
        folder: &Path,
        target: &PushTarget,
        server: &str,
        epoch: u64,
        next: u64,
    ) -> Result<(Self, Place), ClientError> {
        let key = format!("{server} {target:?} {epoch}");
        let name = format!("{:08x}-{}.places", crc32c(key.as_bytes()), target.stream);
        let path = folder.join(name);
        let failed = |error| ClientError::file(&path, error);
        fs::create_dir_all(folder).map_err(|error| ClientError::file(folder, error))?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && next == 0 => String::new(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ClientError::input(format!(
                    "the server has {next} packets of {} already, but where they ended is not \
                     written down on this machine ({} is missing); push the complete file \
                     without --follow, or follow it into another storage",
                    target.stream,
                    path.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        };
        let places = text.split_inclusive('\n').filter_map(parse);
        let places = places.filter(|place| place.sequence <= next);
        let kept: Vec<Place> = std::iter::once(START).chain(places).collect();
        let last = *kept.last().expect("the start is always there");
        let lines: String = kept.iter().skip(1).map(line).collect();
        let fresh = path.with_extension("tmp");
        let file = File::create(&fresh).map_err(failed)?;
        let mut journal = Self { path, file };
        journal.append(&lines)?;
        let renamed = fs::rename(&fresh, &journal.path);
        renamed.map_err(|error| ClientError::file(&journal.path, error))?;
        Ok((journal, last))
    }

    /// Writes a place down, for good.
    pub(super) fn note(&mut self, place: Place) -> Result<(), ClientError> {
        self.append(&line(&place))
    }

    fn append(&mut self, text: &str) -> Result<(), ClientError> {
        let written = self.file.write_all(text.as_bytes());
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|error| ClientError::file(&self.path, error))
    }
}

fn line(place: &Place) -> String {
    format!("{} {}\n", place.sequence, place.offset)
}

/// A place from its line; a line torn by a crash is of a packet that was never sent.
fn parse(line: &str) -> Option<Place> {
    let (sequence, offset) = line.strip_suffix('\n')?.split_once(' ')?;
    Some(Place {
        sequence: sequence.parse().ok()?,
        offset: offset.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, next: u64) -> Result<(Journal, Place), ClientError> {
        let target = PushTarget {
            storage: None,
            agent: "a".to_owned(),
            stream: "s".to_owned(),
        };
        Journal::open(folder, &target, "http://h", 7, next)
    }

    #[test]
    fn places_of_packets_that_arrived_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = |sequence, offset| Place { sequence, offset };
        let (mut journal, start) = open(folder.path(), 0).unwrap();
        assert_eq!(start, place(0, 0));
        journal.note(place(3, 300)).unwrap();
        journal.note(place(9, 900)).unwrap();
        assert_eq!(open(folder.path(), 9).unwrap().1, place(9, 900));
        assert_eq!(open(folder.path(), 8).unwrap().1, place(3, 300));
        assert_eq!(
            open(folder.path(), 20).unwrap().1,
            place(3, 300),
            "the other was forgotten"
        );
        assert_eq!(open(folder.path(), 2).unwrap().1, place(0, 0));
    }

    #[test]
    fn without_a_journal_nothing_is_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(folder.path(), 4).unwrap_err().to_string();
        assert!(
            error.contains("4 packets") && error.contains("without --follow"),
            "{error}"
        );
    }
}
