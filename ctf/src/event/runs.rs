//! Builds the operations of a plan and fuses adjacent fields into runs.

use super::op::Op;
use super::token::{Item, Load, Packing, TokenKind};
use crate::class::ByteOrder;
use crate::integer::{low_u32, u32_saturating, usize_from};
use crate::procedure::{FixedRead, NodeId};

/// Longest run; offsets in it fit 32 bits.
const RUN_BITS_MAX: u64 = 1 << 28;

/// What is known about the head at compile time: `head % modulus == residue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Congruence {
    modulus: u32,
    residue: u32,
}

impl Congruence {
    /// Nothing is known.
    pub(super) const NOTHING: Self = Self {
        modulus: 1,
        residue: 0,
    };

    /// The head is a multiple of `alignment`.
    pub(super) const fn aligned(alignment: u32) -> Self {
        Self {
            modulus: alignment,
            residue: 0,
        }
    }

    fn moved(self, bits: u64) -> Self {
        let residue = (u64::from(self.residue) + bits) % u64::from(self.modulus);
        Self {
            residue: low_u32(residue),
            ..self
        }
    }

    /// Bits to the next multiple of `alignment`, when known.
    fn padding(self, alignment: u32) -> Option<u32> {
        let known = self.modulus >= alignment;
        known.then(|| self.residue.wrapping_neg() & (alignment - 1))
    }

    /// The bit offset in the byte, when known.
    fn bit(self) -> Option<u32> {
        (self.modulus >= 8).then_some(self.residue & 7)
    }

    /// What is known when one of two cases applies.
    pub(super) fn meet(self, other: Self) -> Self {
        let mut modulus = self.modulus.min(other.modulus);
        while self.residue % modulus != other.residue % modulus {
            modulus /= 2;
        }
        Self {
            modulus,
            residue: self.residue % modulus,
        }
    }
}

pub(super) struct Runs {
    ops: Vec<Op>,
    items: Vec<Item>,
    /// Fields of both byte orders exist, so that a byte may contain parts of both.
    mixed: bool,
    known: Congruence,
    /// Index of the `Run` operation to which fields can be added.
    open: Option<usize>,
    bits: u64,
    /// Byte order of the last fixed-length field, when known.
    order: Option<ByteOrder>,
    /// The last address that is the target of a jump.
    label: usize,
}

impl Runs {
    pub(super) fn new(mixed: bool) -> Self {
        let known = Congruence::NOTHING;
        Self {
            ops: Vec::new(),
            mixed,
            known,
            open: None,
            bits: 0,
            order: None,
            items: Vec::new(),
            label: 0,
        }
    }

    pub(super) fn into_parts(mut self) -> (Box<[Op]>, Box<[Item]>) {
        self.close();
        (self.ops.into(), self.items.into())
    }

    /// Emits the value of the field that was added to the run last.
    pub(super) fn item(&mut self, load: Load) {
        let begins_between_bytes = self.known.bit() == Some(0) && load.length.is_multiple_of(8);
        let kind = if begins_between_bytes {
            load.item_kind()
        } else {
            load.token_kind()
        };
        let count = 0;
        self.push_item(Item { load, kind, count });
    }

    /// Emits `count` bytes or elements at the offset `at` in the run.
    pub(super) fn several(&mut self, node: NodeId, at: u32, count: u32, kind: TokenKind) {
        let load = Load::nothing(node, at);
        self.push_item(Item { load, kind, count });
    }

    /// Emits a boundary.
    pub(super) fn mark(&mut self, node: NodeId, kind: TokenKind) {
        self.several(node, 0, 0, kind);
    }

    fn push_item(&mut self, item: Item) {
        let first = u32_saturating(self.items.len());
        self.items.push(item);
        // No jump may lead between two items of one operation.
        match self.ops[self.label..].last_mut() {
            Some(Op::Items { count, .. }) => *count += 1,
            _ => self.ops.push(Op::Items { first, count: 1 }),
        }
    }

    /// What is known about the head here.
    pub(super) fn known(&self) -> Congruence {
        self.known
    }

    /// The address of the next operation. No run extends across it.
    pub(super) fn here(&mut self) -> u32 {
        self.close();
        self.label = self.ops.len();
        u32_saturating(self.label)
    }

    /// Begins a sequence of operations that is the target of a jump.
    pub(super) fn begin(&mut self, known: Congruence) {
        self.close();
        self.known = known;
        self.order = None;
    }

    /// Adds an operation that reads nothing, or from the current run.
    pub(super) fn append(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Adds an operation that moves the head itself.
    pub(super) fn push(&mut self, op: Op) {
        self.close();
        self.ops.push(op);
    }

    /// Adds an operation that aligns to a byte and moves the head by whole bytes.
    pub(super) fn whole_bytes(&mut self, op: Op) {
        self.push(op);
        self.known = Congruence::aligned(8);
    }

    /// Ends a preamble or an event record.
    pub(super) fn end(&mut self) {
        self.close();
        // A jump past the last operation needs an operation there.
        match self.ops[self.label..].last_mut() {
            Some(Op::RunItems { ends, .. }) => *ends = true,
            _ => self.ops.push(Op::End),
        }
    }

    pub(super) fn patch(&mut self, at: u32, op: Op) {
        self.ops[usize_from(at)] = op;
    }

    pub(super) fn close(&mut self) {
        let Some(run) = self.open.take() else { return };
        if let Op::Run { bits, .. } = &mut self.ops[run] {
            *bits = low_u32(self.bits);
        }
        self.fuse(run);
        if let Some(order) = self.order
            && self.mixed
            && self.known.bit() != Some(0)
        {
            self.ops.push(Op::SetOrder { order });
        }
    }

    /// Combines the run at `run` with the operations that follow it, so that fewer dispatch
    /// branches have to be predicted. No jump leads past `run` yet.
    fn fuse(&mut self, run: usize) {
        let Op::Run { alignment, bits } = self.ops[run] else {
            return;
        };
        match self.ops.get(run + 1) {
            Some(&Op::Integer {
                load,
                selected,
                uses,
            }) => {
                self.ops.remove(run + 1);
                self.ops[run] = Op::RunInteger {
                    scope: None,
                    alignment,
                    bits,
                    load,
                    selected,
                    uses,
                };
                self.fuse_scope(run);
            }
            Some(&Op::Items { first, count }) => {
                self.ops.remove(run + 1);
                self.ops[run] = Op::RunItems {
                    scope: None,
                    ends: false,
                    alignment,
                    bits,
                    first,
                    count,
                };
                self.fuse_scope(run);
            }
            _ => {}
        }
    }

    fn fuse_scope(&mut self, run: usize) {
        let before = run.checked_sub(1).filter(|before| *before >= self.label);
        let Some(before) = before else { return };
        if let (
            Op::BeginScope { scope: begun },
            Op::RunItems { scope, .. } | Op::RunInteger { scope, .. },
        ) = (self.ops[before], &mut self.ops[run])
        {
            *scope = Some(begun);
            self.ops.remove(before);
        }
    }

    fn open(&mut self, alignment: u32) {
        self.close();
        self.open = Some(self.ops.len());
        self.bits = 0;
        self.ops.push(Op::Run { alignment, bits: 0 });
    }

    fn advance(&mut self, bits: u64) {
        self.bits += bits;
        self.known = self.known.moved(bits);
    }

    pub(super) fn align(&mut self, alignment: u32) {
        match self.known.padding(alignment) {
            Some(0) => {}
            Some(padding) => {
                self.stretch(1, padding);
            }
            None => {
                self.open(alignment);
                self.known = Congruence::aligned(alignment);
            }
        }
    }

    /// Adds `bits` bits to the run and returns their offset in it.
    pub(super) fn stretch(&mut self, alignment: u32, bits: u32) -> u32 {
        self.align(alignment);
        if self.open.is_none() || self.bits + u64::from(bits) > RUN_BITS_MAX {
            self.open(1);
        }
        let at = low_u32(self.bits);
        self.advance(bits.into());
        at
    }

    /// Adds a field to the run.
    pub(super) fn field(&mut self, read: &FixedRead) -> Load {
        self.align(read.alignment);
        let bit = self.known.bit();
        let at = self.stretch(1, read.length.into());
        if self.mixed && bit != Some(0) && self.order != Some(read.order) {
            match (self.order, bit) {
                (Some(_), Some(_)) => self.ops.push(Op::Fail),
                (before, _) => {
                    self.ops.extend(before.map(|order| Op::SetOrder { order }));
                    self.ops.push(Op::CheckOrder {
                        order: read.order,
                        at,
                    });
                }
            }
        }
        self.order = Some(read.order);
        Load::new(read, at)
    }

    /// Adds `bits` bits of a packed array to the run, unless bytes might be shared by two orders.
    pub(super) fn elements(&mut self, packing: &Packing, bits: u32) -> Option<u32> {
        if self.mixed && !packing.is_bytes() {
            return None;
        }
        let at = self.stretch(packing.alignment, bits);
        self.order = Some(packing.load.order);
        Some(at)
    }

    /// Adds the operation that reads a packed array by itself.
    pub(super) fn packed(&mut self, op: Op, packing: &Packing) {
        self.push(op);
        self.known = if packing.is_bytes() {
            Congruence::aligned(8)
        } else {
            Congruence::NOTHING
        };
        self.order = None;
    }
}
