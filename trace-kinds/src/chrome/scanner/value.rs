//! Values: events, and members of the document.

use std::ops::ControlFlow;

use memchr::memchr3;

use super::{Owner, Place, Scanner, Text, Visit};
use crate::chrome::found::{Damage, Found};

/// Brackets inside an event whose kind is checked; deeper ones make the event broken.
const DEPTH_MAX: u32 = 128;

impl Scanner {
    pub(super) fn begin_value(&mut self, owner: Owner, byte: u8, offset: u64) {
        self.start = offset;
        self.objects = 0;
        self.depth = 0;
        self.is_too_deep = false;
        self.text = Text::Outside;
        self.place = match byte {
            b'{' | b'[' => {
                self.open(byte);
                Place::Inside(owner)
            }
            b'"' => {
                self.text = Text::Inside;
                Place::Inside(owner)
            }
            _ => Place::Scalar(owner),
        };
    }

    fn open(&mut self, byte: u8) {
        self.is_too_deep |= self.depth >= DEPTH_MAX;
        self.depth = self.depth.saturating_add(1);
        self.objects = self.objects << 1 | u128::from(byte == b'{');
    }

    /// Scans the inside of a value. Returns where scanning continues.
    pub(super) fn inside(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        owner: Owner,
        visit: Visit<'_>,
    ) -> ControlFlow<(), usize> {
        while let Some(byte) = bytes.get(at) {
            match self.text {
                Text::Escaped => {
                    self.text = Text::Inside;
                    at += 1;
                    continue;
                }
                Text::Inside => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let Some(stop) = memchr3(b'"', b'\\', b'\n', rest) else {
                        return ControlFlow::Continue(bytes.len());
                    };
                    at += stop + 1;
                    match rest.get(stop) {
                        Some(b'\\') => self.text = Text::Escaped,
                        Some(b'"') => self.text = Text::Outside,
                        _ => {
                            // The line end is where the search for the next event starts.
                            at -= 1;
                            let offset = self.base + at as u64;
                            self.value_damaged(owner, offset, "a line ends in a string", visit)?;
                            return ControlFlow::Continue(at);
                        }
                    }
                }
                Text::Outside => {
                    at += 1;
                    match byte {
                        b'"' => self.text = Text::Inside,
                        b'{' | b'[' => self.open(*byte),
                        b'}' | b']' => {
                            let is_object = self.objects & 1 == 1;
                            self.objects >>= 1;
                            if is_object != (*byte == b'}') && !self.is_too_deep {
                                at -= 1;
                                let offset = self.base + at as u64;
                                let reason = "brackets do not match";
                                self.value_damaged(owner, offset, reason, visit)?;
                                return ControlFlow::Continue(at);
                            }
                            self.depth = self.depth.saturating_sub(1);
                        }
                        _ => continue,
                    }
                }
            }
            if self.depth == 0 && self.text == Text::Outside {
                self.value_ends(owner, self.base + at as u64, visit)?;
                return ControlFlow::Continue(at);
            }
        }
        ControlFlow::Continue(at)
    }

    pub(super) fn value_ends(
        &mut self,
        owner: Owner,
        end: u64,
        visit: Visit<'_>,
    ) -> ControlFlow<()> {
        match owner {
            Owner::Record => {
                self.place = Place::AfterElement;
                self.candidate = Some(end);
                visit(if self.is_too_deep {
                    Found::Damage(Damage {
                        offset: self.start,
                        reason: "an event is nested more than 128 deep",
                        is_end: false,
                    })
                } else {
                    Found::Record(self.start..end)
                })
            }
            Owner::Member => {
                self.place = Place::AfterMember;
                // A packet that starts with `{` contains the start of the list.
                self.candidate = self.has_list.then_some(end);
                ControlFlow::Continue(())
            }
        }
    }

    fn value_damaged(
        &mut self,
        owner: Owner,
        offset: u64,
        reason: &'static str,
        visit: Visit<'_>,
    ) -> ControlFlow<()> {
        match owner {
            Owner::Record => self.damaged(offset, reason, visit),
            Owner::Member => self.end(offset, reason, visit),
        }
    }
}
