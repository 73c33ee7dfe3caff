//! Lowers fields that contain fields: structures, arrays, variants and optionals.
//!
//! The stack of open containers is explicit, because they can nest deeply and a plan is made on any
//! stack.

use super::lowering::{Candidate, Lowering, RUN_BYTES_MAX, node_of};
use super::op::Op;
use super::runs::Congruence;
use super::token::{Load, Packing, TokenKind};
use crate::integer::{low_u32, u32_saturating, usize_from};
use crate::procedure::{Count, Instr, NodeId, SelectorKind};

/// A container whose content is being lowered.
struct Open {
    node: NodeId,
    /// It is selected; a structure also when something in it is.
    selected: bool,
    /// For a member of a structure: it is not inside of a selected field.
    member: Option<bool>,
    content: Content,
}

enum Content {
    Struct,
    Array(Repeated),
    Variant(Box<Options>),
    Optional(Present),
}

/// The content of an array.
struct Repeated {
    alignment: u32,
    count: Count,
    /// Address of the operation of the array.
    begin: u32,
    /// Address of the operations of an element.
    body: u32,
}

/// The content of a variant.
struct Options {
    table: u32,
    /// Addresses of the instructions of each option.
    sources: Vec<u32>,
    /// Addresses of the operations of each option.
    addresses: Vec<u32>,
    /// The option that is being lowered, and the address of the jump at its end.
    index: usize,
    until: usize,
    /// What is known before each option, and after those that are lowered.
    known: Congruence,
    after: Option<Congruence>,
    jumps: Vec<u32>,
}

/// The content of an optional.
struct Present {
    table: u32,
    /// Address of the instruction after the content.
    until: usize,
    known: Congruence,
}

impl<'p, W: FnMut(&Candidate<'_>) -> bool> Lowering<'p, W> {
    /// Lowers the members of a root structure with everything that they contain, and its end.
    pub(super) fn content(&mut self) {
        let mut open: Vec<Open> = Vec::new();
        loop {
            if self.is_at_end(open.last()) {
                self.end_alternative(&mut open);
                continue;
            }
            let Some(instr) = self.next() else { return };
            match instr {
                Instr::EndStruct { .. } | Instr::EndArray { .. } => match open.pop() {
                    Some(done) => self.close(&done),
                    None => return,
                },
                Instr::NextElement { .. } => self.next_element(open.last()),
                instr => self.field(instr, &mut open),
            }
        }
    }

    /// Lowers a field, or begins to when it contains fields.
    fn field(&mut self, instr: &'p Instr, open: &mut Vec<Open>) {
        let is_member = matches!(
            open.last(),
            None | Some(Open {
                content: Content::Struct,
                ..
            })
        );
        let member = node_of(instr).filter(|_| is_member);
        let member = member.map(|node| self.enter_member(node));
        let begun = match *instr {
            Instr::BeginStruct { node, alignment } => {
                self.runs.align(alignment);
                // A structure that is not selected may contain a member that is.
                let selected = self.inside || member.is_some() && self.has_selected(node);
                self.mark(selected, node, TokenKind::StructBegin);
                Some((node, selected, Content::Struct))
            }
            Instr::BeginArray {
                node,
                alignment,
                count,
                ..
            } => {
                let array = self.begin_array(node, alignment, count);
                array.map(|array| (node, self.inside, Content::Array(array)))
            }
            Instr::BeginVariant { node, slot, table } => {
                let selected = self.inside;
                let options = self.begin_variant(table, |table| Op::Variant {
                    node,
                    slot,
                    table,
                    selected,
                });
                Some((node, selected, Content::Variant(options)))
            }
            Instr::BeginOptional {
                node,
                slot,
                kind,
                table,
            } => {
                let selected = self.inside;
                let present = self.begin_optional(table, |table| Op::Optional {
                    node,
                    slot,
                    table,
                    is_bool: kind == SelectorKind::Bool,
                    selected,
                });
                Some((node, selected, Content::Optional(present)))
            }
            ref instr => {
                self.scalar(instr);
                None
            }
        };
        let Some((node, selected, content)) = begun else {
            return self.leave(member);
        };
        self.depth += u32::from(!matches!(content, Content::Struct));
        open.push(Open {
            node,
            selected,
            member,
            content,
        });
    }

    fn leave(&mut self, member: Option<bool>) {
        if let Some(outside) = member {
            self.leave_member(outside);
        }
    }

    /// Writes the end of a container, which is no longer open.
    fn close(&mut self, done: &Open) {
        let kind = match done.content {
            Content::Struct => TokenKind::StructEnd,
            Content::Array(_) => TokenKind::ArrayEnd,
            Content::Variant(_) => TokenKind::VariantEnd,
            Content::Optional(_) => TokenKind::OptionalEnd,
        };
        self.mark(done.selected, done.node, kind);
        self.depth -= u32::from(kind != TokenKind::StructEnd);
        self.leave(done.member);
    }

    /// True at the end of an option of a variant, and of the content of an optional. Their ends are
    /// addresses.
    fn is_at_end(&self, open: Option<&Open>) -> bool {
        match open.map(|open| &open.content) {
            Some(Content::Variant(options)) => self.at >= options.until,
            Some(Content::Optional(present)) => self.at >= present.until,
            _ => false,
        }
    }

    fn end_alternative(&mut self, open: &mut Vec<Open>) {
        let Some(mut done) = open.pop() else { return };
        let is_complete = match &mut done.content {
            Content::Variant(options) => self.end_option(options),
            Content::Optional(present) => {
                self.end_present(present);
                true
            }
            Content::Struct | Content::Array(_) => true,
        };
        if is_complete {
            self.close(&done);
        } else {
            open.push(done);
        }
    }

    /// Begins an array; `None` when its elements need no operations of their own.
    fn begin_array(&mut self, node: NodeId, alignment: u32, count: Count) -> Option<Repeated> {
        if let Some((packing, skipped)) = self.packing(node, alignment) {
            self.at += skipped;
            self.packed(packing, count);
            return None;
        }
        let mut array = Repeated {
            alignment,
            count,
            begin: self.runs.here(),
            body: 0,
        };
        self.runs.push(array.op(node, self.inside, 0));
        self.runs.begin(Congruence::NOTHING);
        array.body = self.runs.here();
        Some(array)
    }

    /// Ends an element of the innermost container, which is an array.
    fn next_element(&mut self, open: Option<&Open>) {
        let Some(Open {
            node,
            selected,
            content: Content::Array(array),
            ..
        }) = open
        else {
            return;
        };
        self.runs.push(Op::Next { body: array.body });
        self.runs.begin(Congruence::NOTHING);
        let after = self.runs.here();
        let op = array.op(*node, *selected, after);
        self.runs.patch(array.begin, op);
    }

    /// The layout of the elements when each of them is one fixed-length field without an effect,
    /// and the number of instructions that this replaces.
    fn packing(&self, node: NodeId, alignment: u32) -> Option<(Packing, usize)> {
        let (read, skipped) = match self.procedure.code().get(self.at..)? {
            [Instr::UnsignedElements(read), Instr::EndArray { .. }, ..] => (read, 2),
            [
                Instr::Unsigned(read) | Instr::Signed(read) | Instr::Fixed(read),
                Instr::NextElement { .. },
                Instr::EndArray { .. },
                ..,
            ] => (read, 3),
            _ => return None,
        };
        let stride = u32::from(read.length).next_multiple_of(read.alignment);
        let load = Load::new(read, 0);
        Some((
            Packing {
                node,
                load,
                alignment,
                stride,
            },
            skipped,
        ))
    }

    fn packed(&mut self, packing: Packing, count: Count) {
        let selected = self.inside;
        let index = u32_saturating(self.packings.len());
        self.packings.push(packing);
        if let Count::Static(elements @ 1..=RUN_BYTES_MAX) = count
            && let Some(bits) = packing.bits(elements)
            && let Ok(bits) = u32::try_from(bits)
            && let Some(at) = self.runs.elements(&packing, bits)
        {
            if selected {
                let (index, count) = (NodeId(index), low_u32(elements));
                self.runs.several(index, at, count, TokenKind::Packed);
            }
            return;
        }
        self.runs.packed(
            Op::Packed {
                packing: index,
                count,
                selected,
            },
            &packing,
        );
    }

    fn table(&mut self, source: u32) -> u32 {
        self.tables.push(self.procedure.table(source).clone());
        u32_saturating(self.tables.len()) - 1
    }

    fn begin_variant(&mut self, source: u32, op: impl FnOnce(u32) -> Op) -> Box<Options> {
        let table = self.table(source);
        let sources = std::mem::take(&mut self.tables[usize_from(table)].addresses);
        self.runs.push(op(table));
        let mut options = Box::new(Options {
            table,
            addresses: vec![0; sources.len()],
            index: sources.len(),
            until: 0,
            sources,
            known: self.runs.known(),
            after: None,
            jumps: Vec::new(),
        });
        self.begin_option(&mut options);
        options
    }

    /// Begins the option before the one that is lowered; false when there is none. The first option
    /// is written last, where it needs no jump: it is the frequent one in the event headers of all
    /// known producers.
    fn begin_option(&mut self, options: &mut Options) -> bool {
        let Some(index) = options.index.checked_sub(1) else {
            return false;
        };
        self.runs.begin(options.known);
        options.addresses[index] = self.runs.here();
        let end = self.tables[usize_from(options.table)].end;
        // Every option ends with a jump to the end of the variant.
        let next = options.sources.get(options.index).copied().unwrap_or(end);
        options.until = usize_from(next) - 1;
        options.index = index;
        self.at = usize_from(options.sources[index]);
        true
    }

    /// Ends an option; true when it was the last one of its variant to be lowered.
    fn end_option(&mut self, options: &mut Options) -> bool {
        if options.index > 0 {
            options.jumps.push(self.runs.here());
            self.runs.push(Op::Jump { to: 0 });
        }
        let here = self.runs.known();
        let after = options.after.map_or(here, |known| known.meet(here));
        options.after = Some(after);
        if self.begin_option(options) {
            return false;
        }
        let here = self.runs.here();
        for jump in options.jumps.drain(..) {
            self.runs.patch(jump, Op::Jump { to: here });
        }
        self.runs.begin(after);
        let table = &mut self.tables[usize_from(options.table)];
        table.addresses = std::mem::take(&mut options.addresses);
        self.at = usize_from(table.end);
        // The end of the variant.
        self.next();
        true
    }

    fn begin_optional(&mut self, source: u32, op: impl FnOnce(u32) -> Op) -> Present {
        let table = self.table(source);
        let until = usize_from(self.tables[usize_from(table)].end);
        self.runs.push(op(table));
        let known = self.runs.known();
        self.runs.begin(known);
        Present {
            table,
            until,
            known,
        }
    }

    fn end_present(&mut self, present: &Present) {
        let here = self.runs.here();
        let after = self.runs.known().meet(present.known);
        self.runs.begin(after);
        self.tables[usize_from(present.table)].end = here;
        // The end of the optional.
        self.next();
    }
}

impl Repeated {
    /// The operation of the array; `after` is the address after its elements.
    fn op(&self, node: NodeId, selected: bool, after: u32) -> Op {
        Op::Array {
            node,
            alignment: self.alignment,
            count: self.count,
            after,
            selected,
        }
    }
}
