//! Visits every state that can be reached, nearest first.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use crate::{
    rules::Form,
    state::Code,
    step::{Step, followers},
};

/// A way into a forbidden state.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) problem: String,
    pub(crate) steps: Vec<Step>,
}

/// What a search found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) sealed: usize,
    pub(crate) fault: Option<Fault>,
}

/// The code of a state decides about equality, this only about places in the table.
#[derive(Default)]
struct CodeHasher(u64);

impl Hasher for CodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut word = 0_u64;
        let mut place = 0;
        for byte in bytes {
            word = (word << 8) | u64::from(*byte);
            place += 1;
            if place == 8 {
                self.write_u64(word);
                (word, place) = (0, 0);
            }
        }
        self.write_u64(word);
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Explores a form to its end, or to the first fault.
pub(crate) fn search(form: &Form) -> Found {
    let mut known = HashSet::<Box<[u8]>, BuildHasherDefault<CodeHasher>>::default();
    // For each state: the one before it, and the step from there.
    let mut ways: Vec<(u32, Step)> = vec![(0, Step::Start)];
    let mut code = Code::new();
    let start = form.start();
    start.write(&mut code);
    known.insert(code.bytes().into());
    let mut queue = VecDeque::from([(0_u32, start)]);
    let mut sealed = 0;
    while let Some((index, state)) = queue.pop_front() {
        if let Some(problem) = state.violation() {
            let steps = steps_to(&ways, index);
            return Found {
                states: known.len(),
                sealed,
                fault: Some(Fault { problem, steps }),
            };
        }
        sealed += usize::from(state.seal.is_some());
        followers(form, &state, &mut |step, after| {
            after.write(&mut code);
            if known.contains(code.bytes()) {
                return;
            }
            known.insert(code.bytes().into());
            queue.push_back((u32::try_from(ways.len()).unwrap(), after));
            ways.push((index, step));
        });
    }
    Found {
        states: known.len(),
        sealed,
        fault: None,
    }
}

fn steps_to(ways: &[(u32, Step)], mut index: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    while index != 0 {
        let (before, step) = ways[index as usize];
        steps.push(step);
        index = before;
    }
    steps.reverse();
    steps
}
