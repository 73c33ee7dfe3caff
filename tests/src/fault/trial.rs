//! One scenario with one fault, and what must hold after it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::FaultPlan;
use super::rows::{Fault, Row};
use super::scenario::{Step, What};
use super::small_disk::{Scarce, SmallDisk};
use super::view::View;
use super::world::{Faulted, World, check_success};

/// Whether the fault happened; an error says what was lost.
pub(super) fn try_row(
    plan: &FaultPlan,
    folder: &Path,
    row: &Row,
    views: &[View],
) -> Result<bool, String> {
    let tried = catch_unwind(AssertUnwindSafe(|| run_row(plan, folder, row, views)));
    tried.map_err(|panic| message(&*panic))
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    text.unwrap_or_else(|| "it panicked".to_owned())
}

/// A step while the file system is full. Its refusal leaves the state before, or for packets a
/// prefix, and the server resumes without a restart.
fn run_full(
    plan: &FaultPlan,
    folder: &Path,
    (row, scarce): (&Row, Scarce),
    views: &[View],
) -> bool {
    let Some(disk) = SmallDisk::mount(folder) else {
        return false;
    };
    let mut world = World::begin(folder, &plan.settings, row.scenario);
    let (before, rest) = row.scenario.steps.split_at(row.step);
    let (step, rest) = rest.split_first().expect("a row is in a step");
    before.iter().for_each(|step| world.perform(step));
    disk.fill(scarce);
    let response = world.try_perform(step);
    let shown = world.view();
    disk.free();
    if (200..300).contains(&response.status) {
        // It needs nothing of what is scarce.
        return false;
    }
    let brief = response.brief();
    assert!(
        matches!(response.status, 503 | 507),
        "refused otherwise: {brief}"
    );
    let (start, end) = (&views[row.step], &views[row.step + 1]);
    let difference = shown.difference(start);
    assert!(
        shown.is_between(start, end, step.between),
        "refused, and changed: {difference}"
    );
    world.perform_soon(step);
    rest.iter().for_each(|step| world.perform(step));
    let last = views.last().expect("there is a first view");
    for _ in 0..2 {
        let end = world.view_of(|view| view == last);
        let difference = end.difference(last);
        assert!(
            end == *last,
            "it ends otherwise than without the fault: {difference}"
        );
        world.crash();
    }
    true
}

fn run_row(plan: &FaultPlan, folder: &Path, row: &Row, views: &[View]) -> bool {
    if let Fault::Full { scarce } = row.fault {
        return run_full(plan, folder, (row, scarce), views);
    }
    let mut world = World::begin(folder, &plan.settings, row.scenario);
    let (before, rest) = row.scenario.steps.split_at(row.step);
    let (step, rest) = rest.split_first().expect("a row is in a step");
    for step in before {
        // As in the run without a fault, in which each step ends when nothing more is reached.
        world.control.note();
        world.perform(step);
        world.settle(row.scenario);
    }
    world.control.disarm();
    let faulted = match &row.fault {
        Fault::Kill { point, nth } => world.perform_and_kill(step, point, *nth),
        Fault::HangUp { point, nth } => world.perform_and_hang_up(step, point, *nth),
        Fault::Partial { sent } => world.perform_in_part(step, *sent),
        Fault::Full { .. } => panic!("a full disk has rows of its own"),
    };
    if !faulted.is_reached {
        return false;
    }
    if row.at_once {
        world.perform_again(step);
    } else {
        let (before, after) = (&views[row.step], &views[row.step + 1]);
        let mut was_shown = false;
        if !matches!(row.fault, Fault::Kill { .. }) {
            was_shown = before != after && world.view() == *after;
            world.stop_and_start();
        }
        let found = check_outcome(&world, step, &faulted, &views[row.step..]);
        let difference = found.difference(after);
        assert!(
            !was_shown || found == *after,
            "a restart undoes what was shown: {difference}"
        );
        world.crash();
        let again = world.view_of(|view| view.is_same(&found));
        let difference = again.difference(&found);
        assert!(
            again.is_same(&found),
            "a second restart changes something: {difference}"
        );
        match step.what {
            What::Restart | What::Crash => {}
            _ if found == views[row.step + 1] && step.again.is_empty() => {}
            _ if found == views[row.step + 1] => world.perform_again(step),
            _ => world.perform(step),
        }
    }
    rest.iter().for_each(|step| world.perform(step));
    let last = views.last().expect("there is a first view");
    let end = world.view_of(|view| view == last);
    let difference = end.difference(last);
    assert!(
        end == *last,
        "it ends otherwise than without the fault: {difference}"
    );
    true
}

/// Compares what the server shows with what the answer promised; returns it.
fn check_outcome(world: &World, step: &Step, faulted: &Faulted, views: &[View]) -> View {
    let (before, after) = (&views[0], &views[1]);
    if let Some(response) = &faulted.answer {
        check_success(step, response);
        let found = world.view_of(|view| view == after);
        let difference = found.difference(after);
        assert!(found == *after, "it was acknowledged: {difference}");
        return found;
    }
    let found = world.view_of(|view| view.is_between(before, after, step.between));
    assert!(
        found.is_between(before, after, step.between),
        "half of the step happened; compared with before: {}\ncompared with after: {}",
        found.difference(before),
        found.difference(after)
    );
    found
}
