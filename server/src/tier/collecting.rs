//! Removing what interrupted uploads left in the store, once for each storage that was uploaded
//! from here.
//!
//! A storage is looked at when the grace has passed twice since its seal, the oldest seal first, a
//! few in each round: what a node left that lost the race for the seal is old enough by then. Up to
//! which seal that was done is noted in a document: a restart neither forgets a storage nor looks
//! at all of them again.

use std::time::Duration;

use object_tier::{Seal, TierError, collect_unnamed};
use storage_core::{StorageError, StorageFilter};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::Tier;
use crate::app_state::AppState;
use crate::clock;

/// The document: when the last storage that was looked at was sealed, and its id.
const DOCUMENT: &str = "object-store.collected";
/// Storages of one round: three requests each.
const STORAGES_PER_ROUND: usize = 2;

/// A storage by the time of its seal.
type Sealed = (i64, StorageId);

/// How far the collection is.
#[derive(Debug, Default)]
pub(super) struct Collection {
    /// The last storage that was looked at, once the document was read.
    done: Option<Sealed>,
    /// Storages that were sealed before it, and came after: an upload may take longer than the
    /// grace.
    late: Vec<Sealed>,
}

impl Collection {
    /// Notes that a storage was uploaded.
    pub(super) fn add(&mut self, sealed: Sealed) {
        if self.done.is_some_and(|done| sealed <= done) {
            self.late.push(sealed);
        }
    }

    /// Looks at the next storages.
    pub(super) async fn round(&mut self, app: &AppState, tier: &Tier) -> Result<(), TierError> {
        let done = match self.done {
            Some(done) => done,
            None => match read(app).await {
                Ok(done) => *self.done.insert(done),
                Err(error) => {
                    tracing::warn!(%error, "it is not known how far the collection is");
                    return Ok(());
                }
            },
        };
        let grace = Duration::from_secs(tier.config.grace_seconds);
        for sealed in due(own(app), &self.late, done, (clock::now_ns(), grace)) {
            storage_core::fault_point!(async "tier.collect.begun");
            collect(tier, sealed.1, grace).await?;
            storage_core::fault_point!(async "tier.collect.removed");
            self.late.retain(|late| *late != sealed);
            if sealed <= done {
                continue;
            }
            self.done = Some(sealed);
            if let Err(error) = write(app, sealed).await {
                tracing::warn!(%error, "how far the collection is cannot be noted");
            }
        }
        Ok(())
    }
}

/// What is looked at next, in the order of seals.
fn due(
    mut own: Vec<Sealed>,
    late: &[Sealed],
    done: Sealed,
    (now, grace): (i64, Duration),
) -> Vec<Sealed> {
    let wait = i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
    let wait = wait.saturating_mul(2);
    own.retain(|sealed| *sealed > done);
    own.extend(late);
    own.retain(|(sealed, _)| now.saturating_sub(*sealed) > wait);
    own.sort_unstable();
    own.truncate(STORAGES_PER_ROUND);
    own
}

/// The storages that were uploaded from here.
fn own(app: &AppState) -> Vec<Sealed> {
    let filter = StorageFilter {
        state: Some(StorageState::Finalized),
        ..StorageFilter::default()
    };
    let all = app.engine.storages().list(&filter);
    let known = all.into_iter().filter_map(|info| {
        let known = app.engine.tiering().known(info.id).ok().flatten()?;
        known.is_own.then_some((known.sealed, info.id))
    });
    known.collect()
}

async fn read(app: &AppState) -> Result<Sealed, StorageError> {
    let bytes = app.engine.documents().read(DOCUMENT).await?;
    Ok(parse(&bytes.unwrap_or_default()))
}

/// A document that is damaged says that nothing was done.
fn parse(bytes: &[u8]) -> Sealed {
    let text = String::from_utf8_lossy(bytes);
    let parsed = text.trim().split_once(' ').and_then(|(sealed, id)| {
        let (sealed, id) = (sealed.parse().ok()?, id.parse().ok()?);
        Some((sealed, id))
    });
    parsed.unwrap_or((i64::MIN, StorageId::from_bytes([0; 16])))
}

async fn write(app: &AppState, (sealed, id): Sealed) -> Result<(), StorageError> {
    let text = format!("{sealed} {id}\n");
    app.engine.documents().write(DOCUMENT, text.into()).await
}

async fn collect(tier: &Tier, id: StorageId, grace: Duration) -> Result<(), TierError> {
    let collected = async {
        match Seal::get(&tier.bucket, id).await? {
            Some(seal) => collect_unnamed(&tier.bucket, id, &seal, grace, clock::now_ns()).await,
            // It was removed.
            None => Ok(object_tier::Collected::default()),
        }
    };
    match collected.await {
        Ok(collected) if collected.objects == 0 => {}
        Ok(collected) => tracing::info!(
            storage = %id, objects = collected.objects, bytes = collected.bytes,
            "objects that no seal names were removed from the object store"
        ),
        Err(error) if error.is_passing() => return Err(error),
        // Nothing would come of asking again.
        Err(error) => tracing::warn!(
            %error, storage = %id,
            "what interrupted uploads of a storage left stays in the object store"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> StorageId {
        StorageId::from_bytes([number; 16])
    }

    #[test]
    fn the_oldest_that_were_not_looked_at_are_next_and_few_at_once() {
        let own = || vec![(30, id(3)), (10, id(1)), (20, id(2)), (20, id(4))];
        let nothing = parse(b"");
        let at = |now| (now, Duration::from_nanos(5));
        assert_eq!(due(own(), &[], nothing, at(20)), []);
        assert_eq!(due(own(), &[], nothing, at(21)), [(10, id(1))]);
        assert_eq!(due(own(), &[], nothing, at(90)), [(10, id(1)), (20, id(2))]);
        assert_eq!(
            due(own(), &[], (20, id(2)), at(90)),
            [(20, id(4)), (30, id(3))]
        );
        assert_eq!(due(own(), &[(9, id(9))], (30, id(3)), at(90)), [(9, id(9))]);
    }

    #[test]
    fn what_was_noted_is_read_again() {
        let text = format!("42 {}\n", id(7));
        assert_eq!(parse(text.as_bytes()), (42, id(7)));
        for damaged in ["", "42", "x y", "42 "] {
            assert_eq!(parse(damaged.as_bytes()).0, i64::MIN, "{damaged:?}");
        }
    }

    #[test]
    fn an_upload_that_took_long_is_not_forgotten() {
        let mut collection = Collection::default();
        collection.add((1, id(1)));
        assert_eq!(collection.late, [], "it is found in its turn");
        collection.done = Some((10, id(2)));
        collection.add((11, id(3)));
        collection.add((9, id(4)));
        assert_eq!(collection.late, [(9, id(4))]);
    }
}
