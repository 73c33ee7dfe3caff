//! Damage of compressed files, as indexes store it and as it is reported.

use chunk_index::{DamagedPart, DftDamage};
use trace_kinds::gzip::{DamageReason, GzipDamage};

use super::head::HEAD_BYTES;
use crate::stored::leaf_source::UNIT_LOST;

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

/// One message about all damage of the file `place`, of which no record may declare the unit.
pub(crate) fn damage_text(
    place: &str,
    damage: &[GzipDamage],
    is_unit_declared: bool,
) -> Option<String> {
    let listed = damage.iter().take(LISTED_MAX).map(ToString::to_string);
    let listed = listed.collect::<Vec<_>>().join("; ");
    let others = match damage.len() {
        0 => return None,
        len if len <= LISTED_MAX => String::new(),
        len => format!("; and {} more damaged parts", len - LISTED_MAX),
    };
    // Behind the start of a file, no unit is looked for.
    let is_unit_lost = !is_unit_declared && damage.iter().any(|part| part.offset < HEAD_BYTES);
    let unit = if is_unit_lost { UNIT_LOST } else { "" };
    Some(format!("{place}: {listed}{others}{unit}"))
}
