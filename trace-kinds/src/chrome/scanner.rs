//! Where the events of a Chrome trace begin and end, found byte by byte.
//!
//! The scanner examines brackets, strings, and the structure around the list of events; the content
//! of events is checked when they are decoded. It stores no bytes, so memory does not depend on
//! the input, and the input may come in pieces of any size.

mod value;

use std::ops::ControlFlow;

use super::found::{Damage, Found};

/// The member of the document that contains the events.
const LIST_KEY: &[u8] = b"traceEvents";

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// After the comma that a packet starts with.
    StartComma,
    /// Before a key of the document, or its end.
    Key,
    InKey,
    Colon,
    Value,
    AfterMember,
    /// Before an event.
    Element,
    AfterElement,
    /// Inside an object, a list or a string.
    Inside(Owner),
    /// Inside a number or a word.
    Scalar(Owner),
    Closed,
    /// After damage: searches for a line that starts with an object.
    Resync,
    Ended,
}

/// What a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Record,
    Member,
}

/// The outermost value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Top {
    /// Of a packet that starts inside the list of events.
    Unknown,
    Object,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    Escaped,
}

/// Whether a byte is used up, or examined again at the new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    Again,
}

/// Finds events in a Chrome trace, or in a packet of one.
#[derive(Debug)]
pub struct Scanner {
    place: Place,
    top: Top,
    /// Offset of the next piece.
    base: u64,
    /// Where the current value starts.
    start: u64,
    depth: u32,
    /// A bit for each open bracket, the innermost lowest: whether it is an object.
    objects: u128,
    is_too_deep: bool,
    text: Text,
    /// Bytes of the current key that match [`LIST_KEY`]; `None` if one differs.
    key: Option<usize>,
    key_escaped: bool,
    has_list: bool,
    /// End of the last event or member, if a packet may end there.
    candidate: Option<u64>,
    /// Where the last comma was, if nothing follows it yet.
    comma: Option<u64>,
    /// After damage: whether the line has only a comma and spaces so far.
    at_line_start: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

type Visit<'v> = &'v mut dyn FnMut(Found) -> ControlFlow<()>;

impl Scanner {
    /// A scanner at the start of a file or packet.
    pub fn new() -> Self {
        Self {
            place: Place::Start,
            top: Top::Unknown,
            base: 0,
            start: 0,
            depth: 0,
            objects: 0,
            is_too_deep: false,
            text: Text::Outside,
            key: None,
            key_escaped: false,
            has_list: false,
            candidate: None,
            comma: None,
            at_line_start: false,
        }
    }

    /// Whether the outermost value is an object.
    pub fn is_object(&self) -> bool {
        self.top == Top::Object
    }

    /// Whether the list of events has begun.
    pub fn has_list(&self) -> bool {
        self.has_list
    }

    /// Whether the outermost value is complete.
    pub fn is_closed(&self) -> bool {
        self.place == Place::Closed
    }

    /// Whether a comma in the list of events is the last that was scanned.
    pub(super) fn follows_comma(&self) -> bool {
        self.place == Place::Element && self.comma.is_some()
    }

    /// Where the event begins that the input so far ends in.
    pub(super) fn open_record(&self) -> Option<u64> {
        (self.place == Place::Inside(Owner::Record)).then_some(self.start)
    }

    /// Scans the next piece. After `visit` breaks, the scanner must not be used further.
    pub fn scan(
        &mut self,
        bytes: &[u8],
        visit: &mut dyn FnMut(Found) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.place {
                Place::Inside(owner) => at = self.inside(bytes, at, owner, visit)?,
                Place::Ended => break,
                _ => {
                    let offset = self.base + at as u64;
                    if self.step(*byte, offset, visit)? == Step::Next {
                        at += 1;
                    }
                }
            }
        }
        self.base += bytes.len() as u64;
        ControlFlow::Continue(())
    }

    /// Ends the input. Returns where the record begins that it ends in.
    pub fn finish(&mut self, visit: &mut dyn FnMut(Found) -> ControlFlow<()>) -> Option<u64> {
        if let Place::Scalar(owner) = self.place {
            // The comma after it is in the next packet.
            let _flow = self.value_ends(owner, self.base, visit);
        }
        let torn = match self.place {
            Place::Inside(Owner::Record) => Some(self.start),
            _ => None,
        };
        let missing = match self.place {
            Place::Ended | Place::Resync => None,
            Place::Start => Some("nothing is in it"),
            _ if !self.has_list => Some("the list `traceEvents` is missing"),
            _ => None,
        };
        if let Some(reason) = missing {
            let offset = self.base;
            // Nothing follows, so it does not matter whether the caller wants more.
            let _ended = self.end(offset, reason, visit);
        }
        torn
    }

    /// Whether an input that ended here lacks the end of its list or document. A list alone need
    /// not be closed.
    pub fn is_cut(&self) -> bool {
        self.top == Top::Object && !matches!(self.place, Place::Closed | Place::Ended)
    }

    /// Whether a list alone ended without its bracket.
    pub fn lacks_bracket(&self) -> bool {
        self.top == Top::List && !matches!(self.place, Place::Closed | Place::Ended)
    }

    fn step(&mut self, byte: u8, offset: u64, visit: Visit<'_>) -> ControlFlow<(), Step> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.place {
            Place::Resync => return self.resync(byte, offset),
            Place::InKey => return self.in_key(byte),
            Place::Scalar(owner) => {
                if is_space || matches!(byte, b',' | b']' | b'}') {
                    self.value_ends(owner, offset, visit)?;
                    return ControlFlow::Continue(Step::Again);
                }
                return ControlFlow::Continue(Step::Next);
            }
            _ if is_space => return ControlFlow::Continue(Step::Next),
            Place::Start => return self.first_byte(byte, offset, visit),
            Place::Element | Place::AfterElement => return self.in_list(byte, offset, visit),
            _ => {}
        }
        match (self.place, byte) {
            (Place::StartComma, b'"') => {
                self.top = Top::Object;
                self.begin_key();
            }
            (Place::StartComma, _) => {
                self.place = Place::Element;
                return ControlFlow::Continue(Step::Again);
            }
            (Place::Key, b'"') => {
                if let Some(end) = self.candidate.take() {
                    visit(Found::Boundary(end))?;
                }
                self.begin_key();
            }
            (Place::Key | Place::AfterMember, b'}') => {
                self.lenient_comma(visit)?;
                self.place = Place::Closed;
            }
            (Place::Colon, b':') => self.place = Place::Value,
            (Place::Value, b'[') if self.key == Some(LIST_KEY.len()) => {
                self.has_list = true;
                self.candidate = None;
                self.place = Place::Element;
            }
            (Place::Value, _) if self.key == Some(LIST_KEY.len()) => {
                self.end(offset, "`traceEvents` is not a list", visit)?;
            }
            (Place::Value, b',' | b'}' | b']' | b':') => {
                self.end(offset, "a value is missing", visit)?;
            }
            (Place::Value, _) => self.begin_value(Owner::Member, byte, offset),
            (Place::AfterMember, b',') => {
                self.comma = Some(offset);
                self.place = Place::Key;
            }
            (Place::Closed, _) => {
                self.end(offset, "something follows the end of the document", visit)?;
            }
            _ => self.end(offset, "the document is not JSON", visit)?,
        }
        ControlFlow::Continue(Step::Next)
    }

    fn first_byte(&mut self, byte: u8, offset: u64, visit: Visit<'_>) -> ControlFlow<(), Step> {
        match byte {
            b'{' => {
                self.top = Top::Object;
                self.place = Place::Key;
            }
            b'[' => {
                self.top = Top::List;
                self.has_list = true;
                self.place = Place::Element;
            }
            // A packet that continues another.
            b',' => {
                self.has_list = true;
                self.place = Place::StartComma;
            }
            b']' => {
                self.has_list = true;
                self.place = Place::AfterMember;
            }
            _ if offset < 3 && BYTE_ORDER_MARK.contains(&byte) => {}
            _ => self.end(offset, "it starts like no Chrome trace", visit)?,
        }
        ControlFlow::Continue(Step::Next)
    }

    /// Examines a byte between events.
    fn in_list(&mut self, byte: u8, offset: u64, visit: Visit<'_>) -> ControlFlow<(), Step> {
        match (self.place, byte) {
            (_, b']') => {
                self.lenient_comma(visit)?;
                self.candidate = Some(offset + 1);
                self.place = match self.top {
                    Top::List => Place::Closed,
                    Top::Object | Top::Unknown => Place::AfterMember,
                };
            }
            (Place::Element, b',') => {
                self.comma = Some(offset);
                let what = "a comma without an event";
                visit(Found::Lenient { offset, what })?;
            }
            (_, b',') => {
                self.comma = Some(offset);
                self.place = Place::Element;
            }
            (_, b'}' | b':') => {
                self.damaged(offset, "it is not between events", visit)?;
            }
            (Place::AfterElement, b'{') => {
                let what = "no comma between events";
                visit(Found::Lenient { offset, what })?;
                self.begin_value(Owner::Record, byte, offset);
            }
            (Place::AfterElement, _) => {
                self.damaged(offset, "neither a comma nor the end of the list", visit)?;
            }
            _ => {
                self.comma = None;
                if let Some(end) = self.candidate.take()
                    && byte == b'{'
                {
                    visit(Found::Boundary(end))?;
                }
                self.begin_value(Owner::Record, byte, offset);
            }
        }
        ControlFlow::Continue(Step::Next)
    }

    fn lenient_comma(&mut self, visit: Visit<'_>) -> ControlFlow<()> {
        match self.comma.take() {
            Some(offset) => visit(Found::Lenient {
                offset,
                what: "a comma after the last element",
            }),
            None => ControlFlow::Continue(()),
        }
    }

    fn begin_key(&mut self) {
        self.comma = None;
        self.key = Some(0);
        self.key_escaped = false;
        self.place = Place::InKey;
    }

    fn in_key(&mut self, byte: u8) -> ControlFlow<(), Step> {
        match byte {
            _ if self.key_escaped => self.key_escaped = false,
            b'"' => {
                self.key = self.key.filter(|matched| *matched == LIST_KEY.len());
                self.place = Place::Colon;
            }
            b'\\' => {
                self.key = None;
                self.key_escaped = true;
            }
            _ => {
                self.key = self
                    .key
                    .filter(|matched| LIST_KEY.get(*matched) == Some(&byte))
                    .map(|matched| matched + 1);
            }
        }
        ControlFlow::Continue(Step::Next)
    }

    /// After damage, an object at the start of a line is the next event.
    fn resync(&mut self, byte: u8, offset: u64) -> ControlFlow<(), Step> {
        match byte {
            b'\n' => self.at_line_start = true,
            b' ' | b'\t' | b'\r' | b',' => {}
            b'{' if self.at_line_start => {
                self.candidate = None;
                self.comma = None;
                self.begin_value(Owner::Record, byte, offset);
            }
            _ => self.at_line_start = false,
        }
        ControlFlow::Continue(Step::Next)
    }

    /// Reports damage in the list, and searches for the next event.
    fn damaged(&mut self, offset: u64, reason: &'static str, visit: Visit<'_>) -> ControlFlow<()> {
        self.place = Place::Resync;
        self.at_line_start = false;
        visit(Found::Damage(Damage {
            offset,
            reason,
            is_end: false,
        }))
    }

    /// Reports damage behind which nothing is read.
    fn end(&mut self, offset: u64, reason: &'static str, visit: Visit<'_>) -> ControlFlow<()> {
        self.place = Place::Ended;
        visit(Found::Damage(Damage {
            offset,
            reason,
            is_end: true,
        }))
    }
}
