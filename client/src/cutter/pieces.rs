use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use trace_kinds::gzip::{
    DamageReason, Entry, GzipDamage, PIECE_TEXT_BYTES_MAX, Piece, PieceEnd, PiecePacket,
    ScanOptions, Scanned, Scanner, TextSink,
};

use super::{Cut, TextLength};
use crate::ClientError;

/// A member with at most this many target sizes of text is not divided.
const WHOLE_TARGETS_MAX: usize = 4;
/// Packets that are cut ahead.
const AHEAD_PACKETS: usize = 2;
/// Text without a place where inflating can start, after which text is cut instead.
const TEXT_BYTES_MAX: usize = PIECE_TEXT_BYTES_MAX / 2;

/// Finds where packets of a text may end.
pub(super) trait Boundaries: Send {
    /// Examines the next text.
    ///
    /// # Errors
    /// What is wrong with it.
    fn feed(&mut self, text: &[u8]) -> Result<(), String>;

    /// The last place where a packet may end, as an offset in the text fed so far.
    fn last(&self) -> u64;

    /// The length of a packet's text.
    fn length(&mut self, text: &[u8]) -> TextLength;

    /// The text is complete. Returns a note about it.
    fn finish(&mut self) -> Option<String>;

    /// Whether the end of the text was cut off, after it is complete.
    fn is_cut_off(&self) -> bool {
        false
    }
}

/// Cuts a gzip file into pieces: ranges of its bytes, each with what inflating it alone needs. The
/// text of a packet ends with a record.
#[derive(Debug)]
pub(super) struct PieceCutter {
    path: PathBuf,
    cuts: Option<Receiver<Result<Cut, ClientError>>>,
    scan: Option<JoinHandle<Ended>>,
    ended: Ended,
}

/// How cutting ended.
#[derive(Debug, Default)]
struct Ended {
    remark: Option<String>,
    cut_off: Option<CutOff>,
    damage: Option<MemberDamage>,
}

/// The end of a file that was cut off, because its producer was killed.
#[derive(Debug)]
pub(super) struct CutOff {
    pub(super) what: String,
    /// The length of the file.
    pub(super) end: u64,
}

/// Damage at which cutting ended.
#[derive(Debug)]
pub(super) struct MemberDamage {
    /// Offset of the damaged member, or of what is none; `None` if what is wrong is the text.
    pub(super) member: Option<u64>,
    /// The bytes of the file that are in no packet up to the next member; its end is not known if
    /// the data of the member could be read, and were cut.
    pub(super) begin: u64,
    pub(super) end: Option<u64>,
    /// Offset in the text of what is in no packet.
    pub(super) text: u64,
    /// Whether text of the member was cut before its damage was found.
    is_unverified: bool,
    what: String,
}

impl MemberDamage {
    /// What cannot be read, up to `end`.
    pub(super) fn reason(&self, end: u64) -> String {
        let begin = self.begin;
        let what = match self.member {
            Some(member) => damaged_member(member, &self.what),
            None => self.what.clone(),
        };
        let unverified = if self.is_unverified {
            "; the text that precedes them in the member is stored, and may be wrong, because only \
             its end shows whether it is intact"
        } else {
            ""
        };
        format!("{what}: bytes {begin} to {end} cannot be read{unverified}")
    }
}

/// Says that a member is damaged, and how.
pub(super) fn damaged_member(member: u64, what: &str) -> String {
    format!("the gzip member at offset {member} is damaged ({what})")
}

impl PieceCutter {
    /// Cuts from the member at `offset` on. If it takes members, complete members that end with a
    /// record are packets as they are.
    pub(super) fn open(
        path: &Path,
        offset: u64,
        target: usize,
        (boundaries, takes_members): (impl Boundaries + 'static, bool),
    ) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let mut file = File::open(path).map_err(failed)?;
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let (out, cuts) = sync_channel(AHEAD_PACKETS);
        let pieces = Pieces {
            path: path.to_owned(),
            file: file.try_clone().map_err(failed)?,
            offset,
            target,
            takes_members,
            boundaries,
            entry: None,
            before: Vec::new(),
            text: Vec::new(),
            cut_at: 0,
            position: offset,
            is_text: false,
            out,
            failed: None,
            is_at_gap: false,
            is_too_long: false,
            unfit: None,
        };
        let work = move || pieces.scan(file);
        let scan = std::thread::Builder::new().name("cutter".to_owned());
        Ok(Self {
            path: path.to_owned(),
            cuts: Some(cuts),
            scan: Some(scan.spawn(work).map_err(failed)?),
            ended: Ended::default(),
        })
    }

    /// The next packet.
    pub(super) fn next(&mut self) -> Result<Option<Cut>, ClientError> {
        if let Some(cuts) = &self.cuts
            && let Ok(cut) = cuts.recv()
        {
            return cut.map(Some);
        }
        self.end();
        Ok(None)
    }

    /// A note about the file, after it was cut to its end.
    pub(super) fn remark(&self) -> Option<String> {
        let remark = self.ended.remark.as_ref()?;
        Some(format!("{}: {remark}", self.path.display()))
    }

    /// The damage at which cutting ended.
    pub(super) fn take_damage(&mut self) -> Option<MemberDamage> {
        self.ended.damage.take()
    }

    /// Whether the end of the file was cut off.
    pub(super) fn take_cut_off(&mut self) -> Option<CutOff> {
        self.ended.cut_off.take()
    }

    fn end(&mut self) {
        // Whoever scans ends when nobody takes its packets.
        self.cuts = None;
        if let Some(scan) = self.scan.take() {
            let ended = scan.join();
            self.ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

impl Drop for PieceCutter {
    fn drop(&mut self) {
        self.cuts = None;
        if let Some(scan) = self.scan.take() {
            // A panic was printed when it happened.
            let _ended = scan.join();
        }
    }
}

/// Gathers the pieces while a file is scanned.
struct Pieces<B> {
    path: PathBuf,
    file: File,
    /// Where the scan began.
    offset: u64,
    target: usize,
    takes_members: bool,
    boundaries: B,
    /// Where the open piece begins.
    entry: Option<Entry>,
    /// Text before it that is in no packet yet.
    before: Vec<u8>,
    /// What it inflates to.
    text: Vec<u8>,
    /// Offset in the text of what is in no packet yet.
    cut_at: u64,
    /// Where the last packet ended in the file.
    position: u64,
    /// Whether the rest of the file is cut as text.
    is_text: bool,
    out: SyncSender<Result<Cut, ClientError>>,
    failed: Option<ClientError>,
    /// Whether the text that follows does not continue the text before.
    is_at_gap: bool,
    /// Whether no record ended for so long that nothing is cut any more. If the member is intact,
    /// the text is none of records.
    is_too_long: bool,
    /// What is wrong with the text.
    unfit: Option<String>,
}

impl<B: Boundaries> Pieces<B> {
    /// Cuts the file, up to the first damage.
    fn scan(mut self, source: impl Read) -> Ended {
        let options = ScanOptions {
            spacing_bytes: Some(self.target as u64),
            whole_text_bytes_max: Some(self.target.saturating_mul(WHOLE_TARGETS_MAX)),
            ..ScanOptions::default()
        };
        let scanned = match Scanner::default().scan(source, options, &mut self) {
            Ok(scanned) => scanned,
            Err(error) => {
                let source = std::io::Error::other(error);
                self.failed
                    .get_or_insert(ClientError::file(&self.path, source));
                Scanned::default()
            }
        };
        let mut damage = self.damage(&scanned);
        let note = self.boundaries.finish().filter(|_| damage.is_none());
        // Of lines, the last one before damage may be cut; other records end before it.
        let is_whole = damage.is_none() || self.takes_members;
        let hole = damage.as_ref().map(|damage| damage.begin - self.offset);
        let end = PieceEnd::Member {
            byte_offset: hole.unwrap_or(scanned.file_len),
        };
        let is_cut = self.failed.is_some()
            || scanned.unverified.is_some()
            || self.is_too_long
            || self.unfit.is_some();
        if !is_cut && self.close(end, is_whole).is_continue() && self.is_text {
            let own = if is_whole {
                self.before.len()
            } else {
                self.own()
            };
            let _flow = self.send(own, None);
        }
        if let Some(failed) = self.failed.take() {
            // Nobody waits for the error of a push that ended.
            let _sent = self.out.send(Err(failed));
            return Ended::default();
        }
        if let Some(damage) = &mut damage {
            damage.text = self.cut_at;
            if !self.takes_members {
                damage.begin = self.position;
            }
        }
        let is_torn = |damage: &&GzipDamage| damage.reason == DamageReason::Torn;
        let torn = scanned.damage.iter().find(is_torn).map(|damage| {
            let member = self.offset + damage.offset;
            format!("the file ends inside the gzip member at offset {member}")
        });
        let of_text = note.clone().filter(|_| self.boundaries.is_cut_off());
        let cut_off = torn.clone().or(of_text).map(|what| CutOff {
            what,
            end: self.offset + scanned.file_len,
        });
        Ended {
            remark: torn.or(note),
            cut_off,
            damage,
        }
    }

    /// The first damage, at which cutting ended.
    fn damage(&self, scanned: &Scanned) -> Option<MemberDamage> {
        let is_hole = |damage: &&GzipDamage| damage.reason != DamageReason::Torn;
        let hole = scanned.damage.iter().find(is_hole);
        let unfit = self.unfit.clone().or_else(|| {
            let too_long = || "no record ends within 32 MiB of text".to_owned();
            self.is_too_long.then(too_long)
        });
        let (member, begin, end, what) = match (scanned.unverified, hole, unfit) {
            (Some(member), ..) => {
                let what = "the checksum of the gzip member does not match its text";
                (Some(member), self.position, None, what.to_owned())
            }
            (None, Some(hole), _) => {
                let what = "the data of the gzip member are damaged, or something else follows";
                let at = self.offset + hole.offset;
                let begin = if self.is_too_long { self.position } else { at };
                let end = Some(self.offset + hole.end);
                (Some(hole.offset), begin, end, what.to_owned())
            }
            // Where the text can be read again is not known.
            (None, None, Some(what)) => {
                let end = self.file.metadata().map_or(self.position, |it| it.len());
                (None, self.position, Some(end), what)
            }
            (None, None, None) => return None,
        };
        Some(MemberDamage {
            member: member.map(|member| self.offset + member),
            begin,
            end,
            text: self.cut_at,
            is_unverified: scanned.unverified.is_some() && self.takes_members,
            what,
        })
    }

    /// Bytes of text in no packet yet, up to the last place where one may end.
    fn own(&self) -> usize {
        let own = self.boundaries.last().saturating_sub(self.cut_at);
        usize::try_from(own).unwrap_or(usize::MAX)
    }

    /// Cuts the open piece, which ends here. One that ends at a block is left open if no record
    /// ends in it.
    fn close(&mut self, end: PieceEnd, is_last: bool) -> ControlFlow<()> {
        let all = self.before.len() + self.text.len();
        let own = if is_last { all } else { self.own().min(all) };
        if self.is_text {
            return ControlFlow::Continue(());
        }
        let Some(entry) = self.entry.take() else {
            return ControlFlow::Continue(());
        };
        if own == 0 && matches!(end, PieceEnd::Block { .. }) {
            self.entry = Some(entry);
            return ControlFlow::Continue(());
        }
        let piece = Piece {
            entry: &entry,
            end,
            text_len: self.text.len() as u64,
        };
        let bytes = match self.bytes(&piece) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.failed
                    .get_or_insert(ClientError::file(&self.path, error));
                return ControlFlow::Break(());
            }
        };
        let is_members = entry.window.is_none() && matches!(end, PieceEnd::Member { .. });
        let packet = if self.takes_members && is_members && self.before.is_empty() && own == all {
            bytes
        } else {
            PiecePacket::of(&piece, &bytes, &self.before, own as u64).encode()
        };
        self.before.append(&mut self.text);
        self.position = self.offset + end.byte_offset();
        self.send(own, Some(packet))
    }

    /// The bytes of the file between a piece's entry and its end.
    fn bytes(&self, piece: &Piece<'_>) -> std::io::Result<Vec<u8>> {
        let range = piece.entry.byte_offset()..piece.end.byte_offset();
        let length = usize::try_from(range.end.saturating_sub(range.start));
        let mut bytes = vec![0; length.unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut bytes, self.offset + range.start)?;
        Ok(bytes)
    }

    /// Sends the first `own` bytes of the text in no packet yet, as `packet` or as they are.
    fn send(&mut self, own: usize, packet: Option<Vec<u8>>) -> ControlFlow<()> {
        if own == 0 && packet.is_none() {
            return ControlFlow::Continue(());
        }
        let rest = self.before.split_off(own.min(self.before.len()));
        let text = std::mem::replace(&mut self.before, rest);
        self.cut_at += text.len() as u64;
        let length = self.boundaries.length(&text);
        let cut = Cut {
            bytes: Bytes::from(packet.unwrap_or(text)),
            position: self.position,
            text: Some(length),
        };
        match self.out.send(Ok(cut)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl<B: Boundaries> TextSink for Pieces<B> {
    fn entry(&mut self, entry: Entry) {
        let end = match entry.window {
            Some(_) => PieceEnd::Block {
                bit_offset: entry.bit_offset,
            },
            None => PieceEnd::Member {
                byte_offset: entry.byte_offset(),
            },
        };
        if self.is_at_gap || self.is_too_long {
            return;
        }
        // The next packet or text notices that nobody takes packets any more.
        if self.failed.is_none() {
            let _flow = self.close(end, false);
        }
        self.entry.get_or_insert(entry);
    }

    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        if self.is_at_gap {
            return ControlFlow::Break(());
        }
        if self.is_too_long {
            return ControlFlow::Continue(());
        }
        if let Err(what) = self.boundaries.feed(text) {
            self.unfit.get_or_insert(what);
        }
        if self.failed.is_some() || self.unfit.is_some() {
            return ControlFlow::Break(());
        }
        self.text.extend_from_slice(text);
        self.is_text |= self.before.len() + self.text.len() > TEXT_BYTES_MAX;
        if !self.is_text {
            return ControlFlow::Continue(());
        }
        self.before.append(&mut self.text);
        let own = self.own();
        if own >= self.target {
            self.send(own, None)?;
        } else if self.before.len() > PIECE_TEXT_BYTES_MAX {
            self.is_too_long = true;
            (self.before, self.entry) = (Vec::new(), None);
        }
        ControlFlow::Continue(())
    }

    fn gap(&mut self) {
        self.is_at_gap = true;
    }
}
