//! Lowers fields whose content is repeated or conditional: arrays, variants and optionals.

use super::lowering::Candidate;
use super::lowering::{Lowering, RUN_BYTES_MAX};
use super::op::Op;
use super::runs::Congruence;
use super::token::{Load, Packing, TokenKind};
use crate::integer::{low_u32, u32_saturating, usize_from};
use crate::procedure::{Count, Instr, NodeId};

impl<'p, W: FnMut(&Candidate<'_>) -> bool> Lowering<'p, W> {
    pub(super) fn array(&mut self, node: NodeId, alignment: u32, count: Count) {
        let selected = self.inside;
        if let Some(packing) = self.packing(node, alignment) {
            self.at += packing.1;
            self.packed(packing.0, count);
            return;
        }
        let begin = self.runs.here();
        let op = |after| Op::Array {
            node,
            alignment,
            count,
            after,
            selected,
        };
        self.runs.push(op(0));
        self.runs.begin(Congruence::NOTHING);
        let body = self.runs.here();
        while let Some(instr) = self.next() {
            match instr {
                Instr::NextElement { .. } => break,
                instr => self.datum(instr),
            }
        }
        self.runs.push(Op::Next { body });
        self.runs.begin(Congruence::NOTHING);
        let after = self.runs.here();
        self.runs.patch(begin, op(after));
        while let Some(instr) = self.next() {
            match instr {
                Instr::EndArray { .. } => break,
                instr => self.datum(instr),
            }
        }
        self.mark(selected, node, TokenKind::ArrayEnd);
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

    pub(super) fn variant(&mut self, source: u32, op: impl FnOnce(u32) -> Op) {
        let table = self.table(source);
        let options = std::mem::take(&mut self.tables[usize_from(table)].addresses);
        let end = self.tables[usize_from(table)].end;
        self.runs.push(op(table));
        let known = self.runs.known();
        let mut jumps = Vec::new();
        let mut addresses = vec![0; options.len()];
        let mut after: Option<Congruence> = None;
        // The first option is written last, where it needs no jump: it is the frequent one in the
        // event headers of all known producers.
        for (index, &from) in options.iter().enumerate().rev() {
            self.runs.begin(known);
            addresses[index] = self.runs.here();
            // Every option ends with a jump to the end of the variant.
            let until = usize_from(options.get(index + 1).copied().unwrap_or(end)) - 1;
            self.at = usize_from(from);
            while self.at < until
                && let Some(instr) = self.next()
            {
                self.datum(instr);
            }
            if index > 0 {
                jumps.push(self.runs.here());
                self.runs.push(Op::Jump { to: 0 });
            }
            let here = self.runs.known();
            after = Some(after.map_or(here, |known| known.meet(here)));
        }
        let here = self.runs.here();
        for jump in jumps {
            self.runs.patch(jump, Op::Jump { to: here });
        }
        self.runs.begin(after.unwrap_or(known));
        self.at = usize_from(end);
        self.tables[usize_from(table)].addresses = addresses;
    }

    pub(super) fn optional(&mut self, source: u32, op: impl FnOnce(u32) -> Op) {
        let table = self.table(source);
        let end = usize_from(self.tables[usize_from(table)].end);
        self.runs.push(op(table));
        let known = self.runs.known();
        self.runs.begin(known);
        while self.at < end
            && let Some(instr) = self.next()
        {
            self.datum(instr);
        }
        let here = self.runs.here();
        let after = self.runs.known().meet(known);
        self.runs.begin(after);
        self.tables[usize_from(table)].end = here;
        self.next();
    }
}
