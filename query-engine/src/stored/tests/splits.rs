//! The splits of a query are the query, whatever indexes there were when it was split and are when
//! it is answered.

use std::collections::BTreeMap;

use super::*;

/// Indexes of the leaves: none, of the first packets, or of all, with chunks of two sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Indexed {
    No,
    First,
    Small,
    Large,
}

fn with(leaf: &Leaf, data: &Arc<Memory>, end: u64, how: Indexed) -> StoredLeaf {
    let whole = stored(leaf, data, None);
    match how {
        Indexed::No => whole,
        Indexed::First => {
            let begun = Leaf {
                length: end,
                runs: std::iter::once(512..end).collect(),
                ..leaf.clone()
            };
            stored(leaf, data, Some(index(stored(&begun, data, None), 300)))
        }
        Indexed::Small => stored(leaf, data, Some(index(whole, 1))),
        Indexed::Large => stored(leaf, data, Some(index(whole, 900))),
    }
}

/// The rows, their number, and the groups, of these splits of a query.
fn answer(leaves: &[StoredLeaf], request: &Request, splits: &[Option<&Split>]) -> Answers {
    let mut answers = Answers::default();
    let limits = Limits::default();
    for split in splits {
        let sources = |fields: &[FieldPath]| -> Vec<Box<dyn ChunkSource>> {
            let mut set = StorageSet::open(leaves.to_vec(), None).unwrap();
            if let Some(split) = split {
                set.select(split).unwrap();
            }
            set.sources(request, fields).unwrap()
        };
        let mut rows = Vec::new();
        let columns = Columns::Fields(["name", "ts", "ret", "fname"].map(str::to_owned).to_vec());
        let (all, mut format) = (sources(&columns.fields()), Ndjson::default());
        let mut out = |row: &[u8]| {
            rows.extend_from_slice(row);
            Ok(())
        };
        write_rows(&all, request, &columns, &mut format, limits, &mut out).unwrap();
        let text = String::from_utf8(rows).unwrap();
        answers.rows.extend(text.lines().map(str::to_owned));
        answers.count += count(&sources(&[]), request, limits).unwrap().0;
        let path = FieldPath::new("name");
        let of_names = sources(std::slice::from_ref(&path));
        let groups = group_by(&of_names, request, &GroupSpec::by("name"), limits);
        for group in groups.unwrap().0 {
            let events = format!("{:?}", group[1]);
            let events: String = events.chars().filter(char::is_ascii_digit).collect();
            let name = format!("{:?}", group[0]);
            *answers.names.entry(name).or_default() += events.parse::<u64>().unwrap();
        }
    }
    answers.rows.sort();
    answers
}

#[derive(Debug, Default, PartialEq)]
struct Answers {
    rows: Vec<String>,
    count: u64,
    names: BTreeMap<String, u64>,
}

fn indexed() -> impl Strategy<Value = Indexed> {
    prop_oneof![
        Just(Indexed::No),
        Just(Indexed::First),
        Just(Indexed::Small),
        Just(Indexed::Large),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn splits_are_the_query_with_any_indexes(
        streams in proptest::collection::vec(
            proptest::collection::vec(lines(), 1..9), 1..4),
        query in query(),
        (before, after) in (indexed(), indexed()),
        covered in any::<prop::sample::Index>(),
        number in 1_u64..9,
        window in proptest::option::of((0_i64..400, 0_i64..200)),
    ) {
        let request = Request {
            query: Some(Query::parse(&query).unwrap()),
            from: window.map(|(from, _)| from * 1_000),
            to: window.map(|(from, length)| (from + length) * 1_000),
            ..Request::default()
        };
        let (mut planned, mut answered) = (Vec::new(), Vec::new());
        for (stream, packets) in (1_u64..).zip(&streams) {
            let packets = packets.iter().map(|lines| (lines.join("\n") + "\n").into_bytes());
            let packets: Vec<Vec<u8>> = packets.collect();
            let (leaf, bytes, ends) = leaf_of(stream, &packets, Codec::None);
            let leaf = Leaf { checksum: None, ..leaf };
            let data = Arc::new(Memory { bytes, batch: 500, ..Memory::default() });
            let end = ends[covered.index(ends.len())];
            planned.push(with(&leaf, &data, end, before));
            answered.push(with(&leaf, &data, end, after));
        }
        let expected = answer(&answered, &request, &[None]);
        let set = StorageSet::open(planned, None).unwrap();
        let plan = set.split(&request, 7, number).unwrap();
        prop_assert!((1..=number).contains(&(plan.splits.len() as u64)));
        let splits: Vec<Split> = plan.splits.into_iter().map(|planned| planned.split).collect();
        prop_assert!(splits.iter().all(|split| split.question == 7));
        prop_assert_eq!(splits.iter().filter(|split| split.is_first).count(), 1);
        let splits: Vec<Option<&Split>> = splits.iter().map(Some).collect();
        prop_assert_eq!(answer(&answered, &request, &splits), expected);
    }
}

#[test]
fn a_split_of_a_leaf_that_has_changed_is_refused() {
    let line = |name: &str| format!("{{\"name\":\"{name}\",\"ts\":7,\"dur\":1,\"ph\":\"X\"}}\n");
    let packets: Vec<Vec<u8>> = ["a", "b", "c", "d"]
        .map(|name| line(name).into_bytes())
        .into();
    let (leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
    let data = Arc::new(Memory {
        bytes,
        ..Memory::default()
    });
    let select = |was: &Leaf, is: &Leaf, metadata: u32| {
        let set = StorageSet::open(vec![stored(was, &data, None)], None).unwrap();
        let plan = set.split(&Request::default(), 1, 1).unwrap();
        let trace = AgentTrace {
            checksum: metadata,
            ..AgentTrace::default()
        };
        let now = StoredLeaf {
            trace: Arc::new(trace),
            ..stored(is, &data, None)
        };
        let mut set = StorageSet::open(vec![now], None).unwrap();
        set.select(&plan.splits[0].split)
            .map_err(|error| error.to_string())
    };
    let open = Leaf {
        checksum: None,
        ..leaf.clone()
    };
    let shorter = Leaf {
        length: ends[2],
        ..open.clone()
    };
    assert_eq!(select(&open, &open, 0), Ok(()));
    assert_eq!(select(&shorter, &open, 0), Ok(()), "it has grown");
    assert_eq!(select(&open, &leaf, 0), Ok(()), "it was finalized");
    let refused = |was: &Leaf, is: &Leaf, metadata: u32, why: &str| {
        let error = select(was, is, metadata).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(
            error.contains("leaf 0000000000000001 of storage"),
            "{error}"
        );
    };
    refused(&open, &shorter, 0, "fewer bytes");
    refused(&open, &open, 5, "trace metadata");
    refused(&leaf, &open, 0, "not finalized");
    let repaired = Leaf {
        cuts: 3,
        ..open.clone()
    };
    refused(&open, &repaired, 0, "repaired");
    let other_bytes = Leaf {
        checksum: Some(1),
        ..leaf.clone()
    };
    refused(&leaf, &other_bytes, 0, "its bytes");
    let another = Leaf {
        leaf: LeafId(2),
        ..open.clone()
    };
    let set = StorageSet::open(vec![stored(&open, &data, None)], None).unwrap();
    let split = set
        .split(&Request::default(), 1, 1)
        .unwrap()
        .splits
        .remove(0)
        .split;
    let mut set = StorageSet::open(vec![stored(&another, &data, None)], None).unwrap();
    assert!(
        set.select(&split)
            .unwrap_err()
            .to_string()
            .contains("not there any more")
    );
}
