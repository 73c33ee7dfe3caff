//! The audit log: who changed what, in lines that seal each other.
//!
//! A request that changes something is answered after its line is synced
//! (`docs/decisions/0069-audit-log.md`). The log is not data of storages: it is written here, on
//! the blocking pool, not by the engine.

mod log;
mod note;

pub use audit_log::AuditDamage;
pub(crate) use log::Audit;
pub use log::{AuditError, DamagedAudit, verify_audit};
pub(crate) use note::note;
