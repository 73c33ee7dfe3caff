//! `chrome.unpaired`: the begins and ends of Chrome slices that have no partner in their packet.
//! With those of the other leaves of a stream, they give the durations of slices that begin and end
//! in different packets.
//!
//! ```text
//! version u8 (1) | CRC32C u32 of the durations that were indexed | whether there are more marks
//! u8 (0, 1) | texts u32 | each with its length u32 | marks u32 | of all marks: position of the
//! packet u64 | nanoseconds i64 | offset in the packet u32 | kind u8 | process u32 | thread or id
//! u32 | name u32 | category u32
//! ```
//!
//! The last four are numbers of texts.

use super::AttachmentError;
use super::fields::{FieldReader, put_length, put_text};

const VERSION: u8 = 1;

/// A begin or an end, or the start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredMark {
    /// Where its packet is.
    pub position: u64,
    /// Its time in nanoseconds.
    pub ts: i64,
    /// Where the record is in its packet.
    pub offset: u32,
    /// Code of what it is; the reader of the kind defines it.
    pub kind: u8,
    /// Numbers of texts.
    pub texts: [u32; 4],
}

/// The begins and ends of a file or leaf that have no partner in their packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChromeUnpaired {
    /// CRC32C of the durations that were indexed.
    pub durations_checksum: u32,
    /// Whether there are more marks.
    pub is_cut: bool,
    /// Names, categories, processes, threads and ids.
    pub texts: Vec<Box<[u8]>>,
    /// In the order of packets, and of times within a packet.
    pub marks: Vec<StoredMark>,
}

impl ChromeUnpaired {
    /// Name of the attachment.
    pub const NAME: &str = "chrome.unpaired";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.durations_checksum.to_le_bytes());
        out.push(u8::from(self.is_cut));
        put_length(&mut out, self.texts.len());
        for text in &self.texts {
            put_text(&mut out, text);
        }
        let marks = &self.marks;
        put_length(&mut out, marks.len());
        out.extend(marks.iter().flat_map(|mark| mark.position.to_le_bytes()));
        out.extend(marks.iter().flat_map(|mark| mark.ts.to_le_bytes()));
        out.extend(marks.iter().flat_map(|mark| mark.offset.to_le_bytes()));
        out.extend(marks.iter().map(|mark| mark.kind));
        for column in 0..4 {
            out.extend(
                marks
                    .iter()
                    .flat_map(|mark| mark.texts[column].to_le_bytes()),
            );
        }
        out
    }

    /// Reads what [`ChromeUnpaired::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged, or a mark has a text that is not there.
    pub fn decode(bytes: &[u8]) -> Result<ChromeUnpaired, AttachmentError> {
        let mut reader = FieldReader::open(ChromeUnpaired::NAME, VERSION, bytes)?;
        let durations_checksum = reader.u32()?;
        let is_cut = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(reader.damaged("a flag is neither 0 nor 1")),
        };
        let mut texts: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..reader.length()? {
            texts.push(reader.text()?.into());
        }
        let count = reader.length()?;
        let positions = reader.column(count, 8)?.as_chunks::<8>().0;
        let times = reader.column(count, 8)?.as_chunks::<8>().0;
        let offsets = reader.column(count, 4)?.as_chunks::<4>().0;
        let kinds = reader.column(count, 1)?;
        let mut numbers: [&[[u8; 4]]; 4] = [&[]; 4];
        for column in &mut numbers {
            *column = reader.column(count, 4)?.as_chunks::<4>().0;
        }
        let mut marks = Vec::with_capacity(count);
        let heads = positions.iter().zip(times).zip(offsets.iter().zip(kinds));
        for (place, ((position, ts), (offset, kind))) in heads.enumerate() {
            let texts_of_mark = numbers.map(|column| column.get(place).copied());
            marks.push(StoredMark {
                position: u64::from_le_bytes(*position),
                ts: i64::from_le_bytes(*ts),
                offset: u32::from_le_bytes(*offset),
                kind: *kind,
                texts: texts_of_mark.map(|text| u32::from_le_bytes(text.unwrap_or_default())),
            });
        }
        let is_known = |text: u32| usize::try_from(text).is_ok_and(|text| text < texts.len());
        let mut named = marks.iter().flat_map(|mark| mark.texts);
        if !named.all(is_known) {
            return Err(reader.damaged("a mark has a text that is not there"));
        }
        reader.end()?;
        Ok(ChromeUnpaired {
            durations_checksum,
            is_cut,
            texts,
            marks,
        })
    }
}
