//! A set of paths of fields, for questions about each field of each event.

/// Number of buckets; a table has fewer columns, so nearly every bucket has at most one path.
const BUCKETS: usize = 64;

/// Paths by their bucket.
#[derive(Debug, Clone)]
pub(super) struct PathSet(Vec<Vec<String>>);

impl Default for PathSet {
    fn default() -> Self {
        Self(vec![Vec::new(); BUCKETS])
    }
}

impl PathSet {
    #[inline]
    pub(super) fn contains(&self, path: &str) -> bool {
        self.0[bucket(path)].iter().any(|own| own == path)
    }
}

impl FromIterator<String> for PathSet {
    fn from_iter<I: IntoIterator<Item = String>>(paths: I) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.0[bucket(&path)].push(path);
        }
        set
    }
}

/// Paths often begin alike (`args.…`), so the length and the last byte tell them apart, quicker
/// than a hash of all bytes.
#[inline]
fn bucket(path: &str) -> usize {
    let last = path.as_bytes().last().copied().unwrap_or(0);
    (path.len().wrapping_mul(11) ^ usize::from(last)) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_its_paths_and_no_others() {
        let paths = ["", "ts", "dur", "args.ret", "args.retry", "args.é"];
        let set: PathSet = paths.iter().map(|path| (*path).to_owned()).collect();
        for path in paths {
            assert!(set.contains(path), "{path:?}");
        }
        // The second is in the bucket of `dur`.
        for path in ["tt", "dir", "args.rets", "rgs.ret", "t"] {
            assert!(!set.contains(path), "{path:?}");
        }
        assert!(!PathSet::default().contains(""));
    }
}
