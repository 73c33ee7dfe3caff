//! A query whose client left ends.

use super::*;

/// Bytes that are followed by the end of a query.
#[derive(Default)]
struct Leaving {
    data: Memory,
    cancel: std::sync::Mutex<crate::Cancel>,
}

impl Fetch for Leaving {
    fn place(&self) -> String {
        self.data.place()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let bytes = self.data.fetch(ranges);
        self.cancel.lock().unwrap().cancel();
        bytes
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        self.data.lost(ranges)
    }
}

#[test]
fn a_cancelled_query_stops_at_the_next_chunk() {
    let line = r#"{"name":"read","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X"}"#;
    let packets = vec![format!("{line}\n").repeat(50).into_bytes(); 6];
    let (mut leaf, bytes, ends) = leaf_of(1, &packets, Codec::Zstd);
    let starts = std::iter::once(512).chain(ends.iter().copied());
    leaf.runs = starts.zip(&ends).map(|(start, end)| start..*end).collect();
    let leaving = Arc::new(Leaving {
        data: Memory {
            bytes,
            ..Memory::default()
        },
        ..Leaving::default()
    });
    let none = Arc::new(Memory::default());
    let limits = Limits {
        threads: 1,
        ..Limits::default()
    };
    for what in ["count", "groups", "rows"] {
        let data: Arc<dyn Fetch> = leaving.clone();
        let stored = StoredLeaf {
            data,
            ..stored(&leaf, &none, None)
        };
        let set = StorageSet::open(vec![stored], None).unwrap();
        let request = Request::default();
        let sources = set.sources(&request, &[]).unwrap();
        *leaving.cancel.lock().unwrap() = request.cancel.clone();
        leaving.data.requests.store(0, Ordering::Relaxed);
        let mut rows = 0;
        let mut out = |_: &[u8]| {
            rows += 1;
            Ok(())
        };
        let ended = match what {
            "count" => count(&sources, &request, limits).map(|_| ()),
            "groups" => group_by(&sources, &request, &GroupSpec::by("pid"), limits).map(|_| ()),
            _ => {
                let (columns, mut format) = (Columns::All, Ndjson::default());
                write_rows(&sources, &request, &columns, &mut format, limits, &mut out).map(|_| ())
            }
        };
        assert!(
            matches!(ended, Err(crate::ReadError::Cancelled)),
            "{what}: {ended:?}"
        );
        assert_eq!(leaving.data.requests.load(Ordering::Relaxed), 1, "{what}");
        assert_eq!(rows, 0, "{what}");
    }
}
