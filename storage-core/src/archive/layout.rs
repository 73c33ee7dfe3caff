//! The records of a ZIP archive; all integers are little-endian.

/// Signature of a local header.
pub(super) const LOCAL: u32 = 0x0403_4b50;
/// Signature of a data descriptor; optional.
pub(super) const DESCRIPTOR: u32 = 0x0807_4b50;
/// Signature of a directory header.
pub(super) const CENTRAL: u32 = 0x0201_4b50;
/// Signature of the ZIP64 end.
pub(super) const END_64: u32 = 0x0606_4b50;
/// Signature of the ZIP64 locator.
pub(super) const LOCATOR_64: u32 = 0x0706_4b50;
/// Signature of the end.
pub(super) const END: u32 = 0x0605_4b50;

/// Bytes of a local header after its signature, without name and extra fields.
pub(super) const LOCAL_BYTES: usize = 26;
/// Bytes of a directory header after its signature, without name, extra fields and comment.
pub(super) const CENTRAL_BYTES: usize = 42;
/// Bytes of the end after its signature, without the comment.
pub(super) const END_BYTES: usize = 18;
/// Bytes of the locator after its signature.
pub(super) const LOCATOR_64_BYTES: usize = 16;

/// Marks a value that is in the ZIP64 extra field.
pub(super) const IN_EXTRA: u32 = u32::MAX;
/// Marks a count that is in the ZIP64 end.
pub(super) const IN_END_64: u16 = u16::MAX;
/// Id of the ZIP64 extra field.
pub(super) const EXTRA_64: u16 = 1;

/// Bit 0: encrypted.
pub(super) const FLAG_ENCRYPTED: u16 = 1;
/// Bit 3: checksum and lengths follow the bytes.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Bits 1 and 2: compression level; bit 11: the name is UTF-8.
pub(super) const FLAGS_HARMLESS: u16 = 0b110 | 1 << 11;

/// Method: stored.
pub(super) const STORED: u16 = 0;
/// Method: deflate.
pub(super) const DEFLATED: u16 = 8;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut raw = [0; 2];
    raw.copy_from_slice(&bytes[at..][..2]);
    u16::from_le_bytes(raw)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..][..4]);
    u32::from_le_bytes(raw)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..][..8]);
    u64::from_le_bytes(raw)
}

/// The values of the ZIP64 extra field, in the order of `short`: each that is [`IN_EXTRA`] is
/// replaced by the next one of the field. `None` when the fields are truncated or lack a value.
/// The second value is whether the field exists.
pub(super) fn widen<const N: usize>(extra: &[u8], short: [u32; N]) -> Option<([u64; N], bool)> {
    let mut rest = extra;
    let mut field = None;
    // Some writers pad the extra fields with up to three zero bytes.
    while rest.len() >= 4 {
        let (id, length) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let (body, next) = rest.get(4..)?.split_at_checked(length)?;
        if id == EXTRA_64 && field.replace(body).is_some() {
            return None;
        }
        rest = next;
    }
    let mut values = [0; N];
    let mut wide = field.unwrap_or_default();
    for (value, short) in values.iter_mut().zip(short) {
        *value = u64::from(short);
        if short == IN_EXTRA {
            let (first, next) = wide.split_at_checked(8)?;
            *value = u64_at(first, 0);
            wide = next;
        }
    }
    Some((values, field.is_some()))
}
