//! Gzip files are scanned and every piece is inflated separately; then the bytes are used as a
//! piece of an invalid index.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use trace_kinds::gzip::{
    Entry, Inflater, Piece, PieceEnd, ScanOptions, Scanner, TextBuffer, TextSink,
};

#[derive(Default)]
struct Collected {
    entries: Vec<Entry>,
    text: Vec<u8>,
}

const TEXT_BYTES_MAX: usize = 4 << 20;

impl TextSink for Collected {
    fn entry(&mut self, entry: Entry) {
        assert_eq!(entry.text_offset, self.text.len() as u64);
        self.entries.push(entry);
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.text.extend_from_slice(text);
        if self.text.len() > TEXT_BYTES_MAX {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn gap(&mut self) {}
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("the file is in memory")
}

fuzz_target!(|input: &[u8]| {
    let Some((&[spacing, skip, len], file)) = input.split_first_chunk() else {
        return;
    };
    let mut collected = Collected::default();
    let options = ScanOptions {
        spacing_bytes: Some(u64::from(spacing) * 64),
        ..ScanOptions::default()
    };
    let scanned = Scanner::default()
        .scan(file, options, &mut collected)
        .expect("memory can be read");
    let mut text = TextBuffer::new();
    for piece in Piece::all(&collected.entries, scanned.file_len, scanned.text_len) {
        let start = index(piece.entry.byte_offset());
        let Some(bytes) = file.get(start..index(piece.end.byte_offset())) else {
            continue;
        };
        if Inflater::default().piece(&piece, bytes, &mut text).is_ok() {
            let start = index(piece.entry.text_offset);
            assert!(collected.text[start..].starts_with(text.text()));
        }
    }
    let bits = file.len() as u64 * 8;
    let entry = Entry {
        bit_offset: u64::from(skip % 8),
        text_offset: 0,
        window: Some(file[..file.len().min(100)].into()),
    };
    let end = PieceEnd::Block {
        bit_offset: bits.saturating_sub(u64::from(len % 8)),
    };
    let piece = Piece {
        entry: &entry,
        end,
        text_len: u64::from(len) * 16,
    };
    if Inflater::default().piece(&piece, file, &mut text).is_ok() {
        assert_eq!(text.text().len() as u64, piece.text_len);
    }
});
