//! Which data files stay here.

use std::sync::Arc;

use storage_core::{StorageFilter, StorageInfo};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;

use super::Tier;
use crate::app_state::AppState;
use crate::clock;

/// A storage whose data files are here and in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    id: StorageId,
    sealed: i64,
    bytes: u64,
}

/// What is to be evicted: what was uploaded too long ago, and then the oldest until the rest is
/// within the limit. `other_bytes` are here and cannot be evicted.
fn planned(
    mut held: Vec<Held>,
    other_bytes: u64,
    (age_max, bytes_max): (Option<i64>, Option<u64>),
    now: i64,
) -> Vec<StorageId> {
    held.sort_by_key(|held| (held.sealed, held.id));
    let all = held
        .iter()
        .map(|held| held.bytes)
        .fold(other_bytes, u64::saturating_add);
    let mut left = all;
    let mut planned = Vec::new();
    for held in held {
        let is_old = age_max.is_some_and(|max| now.saturating_sub(held.sealed) > max);
        let is_beyond = bytes_max.is_some_and(|max| left > max);
        if is_old || is_beyond {
            left = left.saturating_sub(held.bytes);
            planned.push(held.id);
        }
    }
    planned
}

/// Evicts what the settings say.
pub(super) async fn run(app: &Arc<AppState>, tier: &Tier) {
    let config = &tier.config;
    let age_max = i64::try_from(config.evict_after_seconds).unwrap_or(i64::MAX);
    let age_max = (age_max > 0).then(|| age_max.saturating_mul(1_000_000_000));
    let bytes_max = Some(config.local_bytes_max).filter(|max| *max > 0);
    if age_max.is_some() || bytes_max.is_some() {
        let filter = StorageFilter {
            state: Some(StorageState::Finalized),
            ..StorageFilter::default()
        };
        let (mut held, mut other_bytes) = (Vec::new(), 0_u64);
        for info in app.engine.storages().list(&filter) {
            match app.engine.tiering().known(info.id) {
                Ok(Some(known)) if !known.is_evicted => held.push(Held {
                    id: info.id,
                    sealed: known.sealed,
                    bytes: data_bytes(&info),
                }),
                Ok(None) => other_bytes = other_bytes.saturating_add(data_bytes(&info)),
                _ => {}
            }
        }
        for id in planned(held, other_bytes, (age_max, bytes_max), clock::now_ns()) {
            evict(app, id).await;
        }
    }
    match app.engine.tiering().reclaim(config.cache_bytes_max).await {
        Ok(0) => {}
        Ok(bytes) => {
            app.open_files.close_given_up();
            tracing::debug!(bytes, "fetched bytes were given up for others");
        }
        Err(error) => tracing::warn!(%error, "fetched bytes cannot be given up"),
    }
}

async fn evict(app: &Arc<AppState>, id: StorageId) {
    match app.engine.tiering().evict(id).await {
        Ok(bytes) => {
            storage_core::fault_point!(async "tier.evict.ended");
            app.open_files.close(id);
            tracing::info!(storage = %id, bytes, "the data files of the storage are evicted");
        }
        Err(error) => tracing::warn!(%error, storage = %id, "a storage cannot be evicted"),
    }
}

fn data_bytes(info: &StorageInfo) -> u64 {
    let data = info.files.iter().filter(|file| {
        let role = storage_format::paths::FileRole::Data;
        file.role == role
    });
    data.map(|file| file.length).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_only_as_many_as_needed() {
        let id = |number: u8| StorageId::from_bytes([number; 16]);
        let held = |number: u8, sealed, bytes| Held {
            id: id(number),
            sealed,
            bytes,
        };
        let all = || vec![held(1, 30, 5), held(2, 10, 5), held(3, 20, 5)];
        assert_eq!(planned(all(), 0, (None, None), 100), []);
        assert_eq!(planned(all(), 0, (Some(75), None), 100), [id(2), id(3)]);
        assert_eq!(planned(all(), 0, (None, Some(15)), 100), []);
        assert_eq!(planned(all(), 0, (None, Some(14)), 100), [id(2)]);
        assert_eq!(planned(all(), 3, (None, Some(10)), 100), [id(2), id(3)]);
        assert_eq!(
            planned(all(), 99, (None, Some(10)), 100),
            [id(2), id(3), id(1)]
        );
    }
}
