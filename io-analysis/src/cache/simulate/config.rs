//! The caches to simulate, one per line, in the format of RocksDB's analyzer.
//!
//! `name,shard_bits,ghost_capacity,capacity,…`, where the name is `lru`, `lru_priority`,
//! `lru_hybrid` or `lru_hybrid_no_insert_on_row_miss`, optionally prefixed with `ghost_`, and a
//! capacity is a number of bytes with an optional unit K, M or G.

use crate::AnalysisError;
use crate::buckets::parse_size;

/// Maximum number of shard bits, as in RocksDB.
const SHARD_BITS_MAX: u32 = 19;

/// The eviction policy of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Evicts the least recently used entry.
    Lru,
    /// Reserves half of the capacity for index, filter and dictionary blocks and for entries with
    /// hits.
    LruPriority,
    /// Caches key-value pairs in addition to blocks. A Get that hits its key accesses no blocks.
    LruHybrid,
    /// The same, but a Get that misses its key does not insert blocks.
    LruHybridNoInsertOnRowMiss,
}

/// A policy and the capacities to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// The given name.
    pub name: String,
    /// The eviction policy.
    pub policy: Policy,
    /// Whether only blocks that were accessed before are inserted.
    pub ghost: bool,
    /// The cache has 2^`shard_bits` shards.
    pub shard_bits: u32,
    /// Capacity in bytes of the ghost cache, which stores keys only.
    pub ghost_capacity: u64,
    /// Capacities in bytes.
    pub capacities: Vec<u64>,
}

impl CacheConfig {
    /// Parses all configurations in `text`, sorted by name, shard bits and ghost capacity. Lines
    /// that are equal in these are merged.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::CacheConfiguration`] with the line.
    pub fn parse(text: &str) -> Result<Vec<Self>, AnalysisError> {
        let mut configs: Vec<Self> = Vec::new();
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let config = Self::parse_line(line.trim()).map_err(|what| {
                AnalysisError::CacheConfiguration {
                    line: number + 1,
                    what,
                }
            })?;
            match configs.iter_mut().find(|known| known.key() == config.key()) {
                Some(known) => known.capacities.extend(config.capacities),
                None => configs.push(config),
            }
        }
        configs.sort_by(|a, b| a.key().cmp(&b.key()));
        Ok(configs)
    }

    /// An LRU cache with one shard and these capacities.
    pub fn lru(capacities: Vec<u64>) -> Self {
        Self {
            name: "lru".to_owned(),
            policy: Policy::Lru,
            ghost: false,
            shard_bits: 0,
            ghost_capacity: 0,
            capacities,
        }
    }

    /// The label of the configuration in timelines.
    pub(crate) fn label(&self) -> String {
        format!("{}-{}-{}", self.name, self.shard_bits, self.ghost_capacity)
    }

    fn key(&self) -> (&str, u32, u64) {
        (&self.name, self.shard_bits, self.ghost_capacity)
    }

    fn parse_line(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [name, shard_bits, ghost_capacity, capacities @ ..] = &fields[..] else {
            return Err("expected name,shard_bits,ghost_capacity,capacity,…".to_owned());
        };
        let (ghost, plain) = match name.strip_prefix("ghost_") {
            Some(plain) => (true, plain),
            None => (false, *name),
        };
        let policy = match plain {
            "lru" => Policy::Lru,
            "lru_priority" => Policy::LruPriority,
            "lru_hybrid" => Policy::LruHybrid,
            "lru_hybrid_no_insert_on_row_miss" => Policy::LruHybridNoInsertOnRowMiss,
            _ => {
                return Err(format!(
                    "unknown cache `{name}`; use lru, lru_priority, lru_hybrid or \
                     lru_hybrid_no_insert_on_row_miss, optionally prefixed with ghost_"
                ));
            }
        };
        let shard_bits: u32 = shard_bits
            .parse()
            .ok()
            .filter(|&bits| bits <= SHARD_BITS_MAX)
            .ok_or(format!(
                "shard bits must be 0 to {SHARD_BITS_MAX}, not `{shard_bits}`"
            ))?;
        let size = |text: &str| parse_size(text).map_err(|error| error.to_string());
        let capacities = capacities
            .iter()
            .map(|text| size(text))
            .collect::<Result<Vec<_>, _>>()?;
        if capacities.is_empty() || capacities.contains(&0) {
            return Err("a cache needs at least one capacity, and none may be 0".to_owned());
        }
        Ok(Self {
            name: (*name).to_owned(),
            policy,
            ghost,
            shard_bits,
            ghost_capacity: size(ghost_capacity)?,
            capacities,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_their_faults() {
        let configs =
            CacheConfig::parse("lru,0,0,1M\n\nghost_lru_priority,1,1K,2K,3G\nlru,0,0,8\n");
        let configs = configs.unwrap();
        assert_eq!(configs.len(), 2);
        assert_eq!(configs[0].label(), "ghost_lru_priority-1-1024");
        assert_eq!(
            (configs[0].policy, configs[0].ghost),
            (Policy::LruPriority, true)
        );
        assert_eq!(configs[1].capacities, [1 << 20, 8]);
        for (text, fault) in [
            ("lru,0,0", "capacity"),
            ("arc,0,0,1M", "unknown cache `arc`"),
            ("lru,20,0,1M", "shard bits"),
            ("lru,0,0,0", "none may be 0"),
            ("lru,0,x,1M", "`x` is not a number"),
            ("lru", "expected name"),
        ] {
            let error = CacheConfig::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("line 1") && error.contains(fault),
                "{error}"
            );
        }
    }
}
