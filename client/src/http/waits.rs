use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ClientError;

/// Waits shorter than this are not worth a word.
const SAID_FROM: Duration = Duration::from_secs(1);

/// Says what the requests of a client wait for: each reason once, until the wait is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    say: Option<fn(&str)>,
    said: Arc<Mutex<Option<String>>>,
}

impl Waits {
    pub(super) fn new(say: fn(&str)) -> Self {
        Self {
            say: Some(say),
            ..Self::default()
        }
    }

    /// A request that failed will have waited for so long when it is sent again.
    pub(super) fn waiting(&self, error: &ClientError, waited: Duration) {
        let Some(say) = self.say.filter(|_| waited >= SAID_FROM) else {
            return;
        };
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default().to_owned();
        let mut said = self.said();
        if said.as_ref() != Some(&reason) {
            say(&format!("waiting for the server: {reason}"));
            *said = Some(reason);
        }
    }

    /// A request that waited was answered, or gave up.
    pub(super) fn over(&self) {
        *self.said() = None;
    }

    fn said(&self) -> MutexGuard<'_, Option<String>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
