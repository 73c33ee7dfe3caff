use super::{Procedure, SelectorTable};
use crate::class::{IntRange, RangeSet};
use crate::parse_metadata;

fn set<T: Copy + Ord>(ranges: &[(T, T)]) -> RangeSet<T> {
    let range = |&(lower, upper): &(T, T)| IntRange { lower, upper };
    RangeSet::new(ranges.iter().map(range).collect())
}

#[test]
fn selectors_select_by_range() {
    let sets = [set(&[(0, 3), (9, 9)]), set(&[(4, 8), (u64::MAX, u64::MAX)])];
    let table = SelectorTable::unsigned(sets.iter());
    let choices = [
        (0, Some(0)),
        (3, Some(0)),
        (4, Some(1)),
        (9, Some(0)),
        (10, None),
    ];
    for (value, choice) in choices {
        assert_eq!(table.select(value), choice, "{value}");
    }
    assert_eq!(table.select(u64::MAX), Some(1));
}

#[test]
fn signed_selectors_sort_as_numbers() {
    let sets: Vec<_> = (-20..20)
        .map(|option| set(&[(option * 10, option * 10 + 4)]))
        .collect();
    let table = SelectorTable::signed(sets.iter());
    for value in -210..210_i64 {
        let option = value.div_euclid(10);
        let chosen = (-20..20).contains(&option) && value.rem_euclid(10) < 5;
        let expected = chosen.then(|| u32::try_from(option + 20).unwrap());
        assert_eq!(table.select(value.cast_unsigned()), expected, "{value}");
    }
}

#[test]
fn nodes_have_names_and_nest() {
    let text = b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        event { name = e; fields := struct {
            integer { size = 8; } _len;
            struct { string s[_len]; } inner;
        }; };";
    let procedure = Procedure::new(parse_metadata(text).unwrap()).unwrap();
    let described: Vec<_> = (procedure.nodes().iter().enumerate())
        .map(|(index, node)| (index, node.name(), node.display_name(), node.end().index()))
        .collect();
    assert_eq!(
        described,
        [
            (0, None, None, 5),
            (1, Some("_len"), Some("len"), 2),
            (2, Some("inner"), Some("inner"), 5),
            (3, Some("s"), Some("s"), 5),
            (4, None, None, 5),
        ]
    );
}
