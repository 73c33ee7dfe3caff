//! The protocol of the chain, explored to its end.
//!
//! A node owns a storage, a second one takes it over, a third may do so again. Requests arrive at
//! any later time, one of them twice; answers are lost, and every node may stall between any two
//! steps. In no state may a seal lack an acknowledged packet, or hold one twice. Leaving out one
//! rule must lead to such a state: a model that finds no fault in a wrong protocol proves nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what was measured")]

mod few;
mod rules;
mod search;
mod state;
mod step;

use rules::{Epochs, Form, Variant};
use search::{Found, search};

fn form(variant: Variant, under_way: usize, first: u8, second: u8, third: bool) -> Form {
    Form {
        variant,
        epochs: Epochs::Given,
        first,
        second,
        third,
        under_way,
    }
}

fn explore(form: &Form) -> Found {
    let started = std::time::Instant::now();
    let found = search(form);
    let time = started.elapsed().as_secs_f64();
    println!(
        "{form:?}: {} states, {} sealed, {time:.1} s, {:?}",
        found.states, found.sealed, found.fault
    );
    found
}

/// The numbers of states are those of the first model, in another language: both explore the same.
#[track_caller]
fn holds(form: &Form, states: usize, sealed: usize) {
    let found = explore(form);
    assert!(found.fault.is_none(), "{:?}", found.fault);
    assert_eq!((found.states, found.sealed), (states, sealed), "{form:?}");
}

/// `states` were visited when the fault was found.
#[track_caller]
fn fails(form: &Form, states: usize) {
    let found = explore(form);
    let fault = found.fault.expect("a fault is found");
    assert!(fault.problem.contains("not in the seal"), "{fault:?}");
    assert!(!fault.steps.is_empty(), "{fault:?}");
    assert_eq!(found.states, states, "{form:?}");
}

/// The large forms take minutes without optimization: `FENCE_MODEL=full` explores them.
fn explores_all() -> bool {
    std::env::var_os("FENCE_MODEL").is_some_and(|value| value == "full")
}

#[test]
fn two_nodes_lose_nothing() {
    holds(&form(Variant::Whole, 1, 2, 1, false), 6_737, 4_047);
    holds(&form(Variant::Whole, 1, 2, 2, false), 8_482, 4_835);
}

#[test]
fn three_nodes_lose_nothing() {
    holds(&form(Variant::Whole, 1, 1, 1, true), 104_130, 56_904);
    if explores_all() {
        holds(&form(Variant::Whole, 1, 2, 1, true), 949_262, 743_502);
        holds(&form(Variant::Whole, 1, 2, 2, true), 1_337_741, 1_019_532);
    }
}

#[test]
fn every_rule_is_needed() {
    fails(&form(Variant::EpochInKey, 1, 2, 2, false), 1_508);
    fails(&form(Variant::CollectOwns, 1, 2, 2, false), 3_065);
    fails(&form(Variant::ExistingCounts, 1, 2, 2, false), 2_316);
    fails(&form(Variant::SealUnseen, 1, 2, 2, false), 7_821);
}

/// Two appends of a node under way: an order is needed, and with three nodes it is not enough.
#[test]
fn one_append_at_a_time() {
    fails(&form(Variant::AnyOrder, 2, 2, 2, false), 7_779);
    if explores_all() {
        fails(&form(Variant::Whole, 2, 2, 2, true), 1_522_614);
    }
}

/// With one append under way nothing goes wrong without these rules. They stay: they cost nothing,
/// and two appends under way would need them.
#[test]
fn two_rules_are_only_careful() {
    holds(&form(Variant::VoidCounts, 1, 2, 2, false), 8_482, 4_835);
    holds(&form(Variant::CollectVoid, 1, 2, 2, false), 8_482, 4_835);
    if explores_all() {
        holds(
            &form(Variant::CollectVoid, 1, 2, 2, true),
            1_372_393,
            1_054_184,
        );
    }
}

/// As `object_tier::chain` does it: a node chooses its epoch when it makes its `own`, so that two
/// may choose the same, and no record may ever lack its `own` before the storage is sealed.
fn chosen(variant: Variant, first: u8, second: u8, third: bool) -> Form {
    Form {
        epochs: Epochs::Chosen,
        ..form(variant, 1, first, second, third)
    }
}

#[test]
fn nodes_may_choose_the_same_epoch() {
    holds(&chosen(Variant::Whole, 2, 2, false), 8_564, 4_866);
    holds(&chosen(Variant::Whole, 1, 1, true), 79_314, 41_282);
    fails(&chosen(Variant::CollectOwns, 2, 2, false), 4_186);
    fails(&chosen(Variant::ExistingCounts, 2, 2, false), 2_397);
    fails(&chosen(Variant::SealUnseen, 2, 2, false), 7_903);
    if explores_all() {
        holds(&chosen(Variant::Whole, 2, 2, true), 725_883, 528_282);
    }
}
