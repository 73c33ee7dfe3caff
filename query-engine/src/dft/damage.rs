//! Damage of compressed files, as indexes store it and as it is reported.

use chunk_index::{DamagedPart, DftDamage};
use trace_kinds::gzip::{DamageReason, GzipDamage};

/// Damaged parts that are listed in one message.
const LISTED_MAX: usize = 4;

/// Damage as it is stored in an index.
pub(crate) fn stored_damage(damage: &[GzipDamage]) -> DftDamage {
    let part = |damage: &GzipDamage| DamagedPart {
        offset: damage.offset,
        end: damage.end,
        reason: damage.reason.code(),
    };
    DftDamage(damage.iter().map(part).collect())
}

/// Damage according to the attachment of an index, if it has one. An invalid one is ignored: the
/// checksum of its block protects it.
pub(crate) fn damage_of(attachment: Option<impl AsRef<[u8]>>) -> Vec<GzipDamage> {
    let stored = attachment.and_then(|bytes| DftDamage::decode(bytes.as_ref()).ok());
    let stored = stored.unwrap_or_default();
    let damage = |part: &DamagedPart| GzipDamage {
        offset: part.offset,
        end: part.end,
        reason: DamageReason::from_code(part.reason).unwrap_or(DamageReason::Member),
    };
    stored.0.iter().map(damage).collect()
}

/// One message about all damage of the file `place`.
pub(crate) fn damage_text(place: &str, damage: &[GzipDamage]) -> Option<String> {
    let listed = damage.iter().take(LISTED_MAX).map(ToString::to_string);
    let listed = listed.collect::<Vec<_>>().join("; ");
    match damage.len() {
        0 => None,
        len if len <= LISTED_MAX => Some(format!("{place}: {listed}")),
        len => Some(format!(
            "{place}: {listed}; and {} more damaged parts",
            len - LISTED_MAX
        )),
    }
}
