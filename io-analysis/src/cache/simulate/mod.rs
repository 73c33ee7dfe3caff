//! Simulated caches: the hit ratio with another size or policy.

mod config;
mod lru;
mod policy;
mod simulator;

pub use config::{CacheConfig, Policy};
pub use simulator::{CurvePoint, MissTimeline};
pub(crate) use simulator::{Simulator, miss_timeline_files};
