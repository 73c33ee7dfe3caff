//! States of a storage and the transitions between them.
//!
//! ```text
//! CREATED → OPEN ⇄ RECORDING → FINALIZING → FINALIZED
//!              └────────┴──────────┴──→ FAILED
//! ```
//!
//! Nothing leads away from FINALIZED, and only a repair from FAILED: to OPEN. It replaces the
//! storage file itself, so no other change of state can do that. After a crash RECORDING becomes
//! OPEN again, and a finalization continues.

use storage_format::storage_file::StorageState;

/// Whether a storage may change from one state to the other.
pub(crate) fn may_move(from: StorageState, to: StorageState) -> bool {
    use StorageState::{Created, Failed, Finalized, Finalizing, Open, Recording};
    match (from, to) {
        (Created, Open)
        | (Open, Recording)
        | (Recording, Open)
        | (Open | Recording, Finalizing)
        // An empty storage may be finalized without having been opened.
        | (Created, Finalizing)
        | (Finalizing, Finalized)
        // A finalization that failed because the disk was full, or was cancelled.
        | (Finalizing, Open) => true,
        (from, Failed) => from != Finalized,
        _ => false,
    }
}

/// The state of a storage after a restart of a server that ended in `state`.
pub(crate) fn after_restart(state: StorageState) -> StorageState {
    match state {
        StorageState::Recording => StorageState::Open,
        state => state,
    }
}

/// Whether packets may be pushed.
pub(crate) fn accepts_packets(state: StorageState) -> bool {
    matches!(state, StorageState::Open | StorageState::Recording)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [StorageState; 6] = [
        StorageState::Created,
        StorageState::Open,
        StorageState::Recording,
        StorageState::Finalizing,
        StorageState::Finalized,
        StorageState::Failed,
    ];

    #[test]
    fn nothing_leads_away_from_finalized_or_failed() {
        for to in ALL {
            assert!(!may_move(StorageState::Finalized, to));
            assert_eq!(
                may_move(StorageState::Failed, to),
                to == StorageState::Failed
            );
        }
    }

    #[test]
    fn only_finalizing_leads_to_finalized() {
        let from: Vec<_> = ALL
            .into_iter()
            .filter(|&from| may_move(from, StorageState::Finalized))
            .collect();
        assert_eq!(from, [StorageState::Finalizing]);
    }

    #[test]
    fn a_restart_ends_a_recording_and_continues_a_finalization() {
        for state in ALL {
            let expected = match state {
                StorageState::Recording => StorageState::Open,
                state => state,
            };
            assert_eq!(after_restart(state), expected);
        }
    }
}
