//! When rounds begin, and what they leave out.

use std::time::Duration;

use storage_format::StorageId;
use tokio::sync::watch;

use super::Tier;

/// How long a storage of the store that could not be served is not tried again.
const REFUSED_LASTS: Duration = Duration::from_secs(300);
/// When the next round begins.
pub(super) struct Pace {
    pub(super) interval: Duration,
    wake: watch::Receiver<u64>,
}

impl Pace {
    pub(super) fn of(tier: &Tier) -> Self {
        Self {
            interval: Duration::from_secs(tier.config.check_seconds),
            wake: tier.wake.subscribe(),
        }
    }

    pub(super) async fn next(&mut self) {
        // Without a sender there is no server.
        let _ = tokio::time::timeout(self.interval, self.wake.changed()).await;
    }
}

/// Whether a storage was tried a moment ago.
pub(super) fn is_refused(tier: &Tier, id: StorageId) -> bool {
    let mut refused = tier.refused.lock();
    refused.retain(|_, since| since.elapsed() < REFUSED_LASTS);
    refused.contains_key(&id)
}
