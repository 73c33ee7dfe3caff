use std::cell::Cell;

use proptest::prelude::*;

use super::*;

thread_local! {
    /// How often the name of a mark was looked at.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A begin or an end of one of a few tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marked {
    ts: i64,
    is_begin: bool,
    track: u8,
    name: u8,
    cat: u8,
}

impl Side for Marked {
    type Track = u8;
    type Text = u8;

    fn ts(&self) -> i64 {
        self.ts
    }

    fn is_begin(&self) -> bool {
        self.is_begin
    }

    fn track(&self) -> u8 {
        self.track
    }

    fn name(&self) -> u8 {
        LOOKS.set(LOOKS.get() + 1);
        self.name
    }

    fn cat(&self) -> u8 {
        self.cat
    }
}

/// What [`pair`] promises, by looking through all open begins.
fn one_by_one(sides: &[Marked]) -> (Vec<(Marked, i64)>, Vec<Marked>) {
    let agree = |end: u8, begin: u8| end == 0 || begin == 0 || end == begin;
    let mut order: Vec<usize> = (0..sides.len()).collect();
    order.sort_by_key(|place| sides[*place].ts);
    let (mut open, mut pairs): (Vec<usize>, Vec<_>) = (Vec::new(), Vec::new());
    let mut is_paired = vec![false; sides.len()];
    for place in order {
        let side = sides[place];
        if side.is_begin {
            open.push(place);
            continue;
        }
        let ended = open.iter().rposition(|begin| {
            let begin = sides[*begin];
            begin.track == side.track && agree(side.name, begin.name) && agree(side.cat, begin.cat)
        });
        if let Some(ended) = ended {
            let begin = open.remove(ended);
            (is_paired[begin], is_paired[place]) = (true, true);
            pairs.push((sides[begin], side.ts - sides[begin].ts));
        }
    }
    let left = sides.iter().zip(is_paired);
    let left = left.filter_map(|(side, is_paired)| (!is_paired).then_some(*side));
    (pairs, left.collect())
}

fn paired(sides: &[Marked]) -> (Vec<(Marked, i64)>, Vec<Marked>) {
    let mut pairs = Vec::new();
    let is_paired = pair(sides, |begin, duration| {
        pairs.push((*begin, duration));
    });
    let left = sides.iter().zip(is_paired);
    let left = left.filter_map(|(side, is_paired)| (!is_paired).then_some(*side));
    (pairs, left.collect())
}

proptest! {
    #[test]
    fn an_end_closes_the_innermost_open_begin_that_it_does_not_contradict(
        sides in proptest::collection::vec(
            (0..40_i64, any::<bool>(), 0..2_u8, 0..4_u8, 0..3_u8).prop_map(
                |(ts, is_begin, track, name, cat)| Marked { ts, is_begin, track, name, cat },
            ),
            0..80,
        ),
    ) {
        prop_assert_eq!(paired(&sides), one_by_one(&sides));
    }
}

#[test]
fn ends_that_no_begin_answers_take_no_memory() {
    let mark = |at: u16| Marked {
        ts: i64::from(at),
        is_begin: at == 0,
        track: u8::try_from(at % 251).unwrap(),
        name: u8::try_from(at % 241).unwrap(),
        cat: u8::try_from(at / 256).unwrap(),
    };
    let sides: Vec<Marked> = (0..60_000).map(mark).collect();
    let order: Vec<u32> = (0..60_000).collect();
    let lists = OpenBegins::new(&sides, &order).lists();
    assert!(lists < 60_000 / 8, "{lists}");
}

#[test]
fn ends_do_not_look_through_the_begins_that_they_do_not_end() {
    let count: i64 = 5_000;
    let mark = |ts: i64| Marked {
        ts,
        is_begin: ts < count,
        track: 0,
        // One end in four is that of a begin.
        name: if ts < count || ts % 4 == 0 { 1 } else { 2 },
        cat: 1,
    };
    let sides: Vec<Marked> = (0..2 * count).map(mark).collect();
    LOOKS.set(0);
    let (pairs, _) = paired(&sides);
    let looks = LOOKS.get();
    assert_eq!(pairs.len(), 1_250);
    assert!(looks < 100 * sides.len() as u64, "{looks}");
}
