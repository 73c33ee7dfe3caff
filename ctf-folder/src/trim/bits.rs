//! Bits at any offset, in both orders: CTF numbers the bits of a byte from the least significant
//! one in little-endian fields, from the most significant one in big-endian fields.

use ctf::class::{ByteOrder, FixedBits};

/// The byte of a bit, and the mask of the bit in it.
fn place(at: u64, order: ByteOrder) -> (usize, u8) {
    let byte = usize::try_from(at / 8).unwrap_or(usize::MAX);
    let mask = match order {
        ByteOrder::Little => 1_u8 << (at % 8),
        ByteOrder::Big => 0x80_u8 >> (at % 8),
    };
    (byte, mask)
}

fn put_bit(out: &mut Vec<u8>, at: u64, order: ByteOrder, bit: bool) {
    let (byte, mask) = place(at, order);
    if byte >= out.len() {
        out.resize(byte.saturating_add(1), 0);
    }
    if bit {
        out[byte] |= mask;
    } else {
        out[byte] &= !mask;
    }
}

/// Copies `length` bits.
pub(super) fn copy(
    (data, from): (&[u8], u64),
    (out, to): (&mut Vec<u8>, u64),
    length: u64,
    order: ByteOrder,
) {
    for bit in 0..length {
        let (byte, mask) = place(from + bit, order);
        let is_set = data.get(byte).is_some_and(|byte| byte & mask != 0);
        put_bit(out, to + bit, order, is_set);
    }
}

/// Copies bytes to a bit offset that is a multiple of 8.
pub(super) fn copy_bytes(bytes: &[u8], out: &mut Vec<u8>, to: u64) {
    let begin = usize::try_from(to / 8).unwrap_or(usize::MAX);
    let end = begin.saturating_add(bytes.len());
    if end > out.len() {
        out.resize(end, 0);
    }
    out[begin..end].copy_from_slice(bytes);
}

/// Writes the low bits of `value` as a field at the bit offset `at`.
pub(super) fn put(out: &mut Vec<u8>, at: u64, bits: FixedBits, value: u64) {
    let length = u64::from(bits.length);
    for place in 0..length {
        let from_low = match bits.byte_order {
            ByteOrder::Little => place,
            ByteOrder::Big => length - 1 - place,
        };
        let from_low = if bits.is_reversed() {
            length - 1 - from_low
        } else {
            from_low
        };
        put_bit(out, at + place, bits.byte_order, value >> from_low & 1 != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_in_their_order() {
        let mut out = vec![0xff; 4];
        put(
            &mut out,
            8,
            FixedBits::new(16, 8, ByteOrder::Little),
            0x1234,
        );
        assert_eq!(out, [0xff, 0x34, 0x12, 0xff]);
        put(&mut out, 8, FixedBits::new(16, 8, ByteOrder::Big), 0x1234);
        assert_eq!(out, [0xff, 0x12, 0x34, 0xff]);
        put(&mut out, 4, FixedBits::new(3, 1, ByteOrder::Little), 0b010);
        assert_eq!(out[0], 0b1010_1111);
        put(&mut out, 0, FixedBits::new(3, 1, ByteOrder::Big), 0b011);
        assert_eq!(out[0], 0b0110_1111);
    }

    #[test]
    fn bits_are_copied_between_any_offsets() {
        let data = [0b1011_0010, 0b0110_1101, 0xa5];
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for from in 0..8 {
                for to in 0..8 {
                    let mut out = Vec::new();
                    copy((&data, from), (&mut out, to), 13, order);
                    let mut back = Vec::new();
                    copy((&out, to), (&mut back, from), 13, order);
                    for bit in from..from + 13 {
                        let (byte, mask) = place(bit, order);
                        assert_eq!(back[byte] & mask, data[byte] & mask, "{from} {to} {bit}");
                    }
                }
            }
        }
    }
}
