//! The faults to try.

use super::scenario::{SCENARIOS, Scenario, Step, What};
use super::small_disk::Scarce;
use super::world::{Sent, World};
use super::{Clean, FaultPlan};

/// A point is faulted at most this many times in one step.
const NTH_MAX: u64 = 3;

#[derive(Clone, Debug)]
pub(super) enum Fault {
    Kill { point: String, nth: u64 },
    HangUp { point: String, nth: u64 },
    Partial { sent: Sent },
    Full { scarce: Scarce },
}

impl Fault {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "killed at a point",
            Self::HangUp { .. } => "client hangs up at a point",
            Self::Partial { .. } => "client hangs up while it sends",
            Self::Full {
                scarce: Scarce::Bytes,
            } => "no bytes are free",
            Self::Full {
                scarce: Scarce::Inodes,
            } => "no inodes are free",
        }
    }

    /// The point and the kind of a fault at a point.
    pub(super) fn name(&self) -> Option<String> {
        let point = self.point()?;
        Some(format!("{point}, {}", self.kind()))
    }

    fn is_hang_up(&self) -> bool {
        matches!(self, Self::HangUp { .. } | Self::Partial { .. })
    }

    fn point(&self) -> Option<&str> {
        match self {
            Self::Kill { point, .. } | Self::HangUp { point, .. } => Some(point),
            Self::Partial { .. } | Self::Full { .. } => None,
        }
    }
}

/// One fault in one step.
pub(super) struct Row {
    pub(super) scenario: &'static Scenario,
    /// The number of the scenario.
    pub(super) at: usize,
    pub(super) step: usize,
    pub(super) fault: Fault,
    /// Whether the client repeats its request at once instead of after a restart.
    pub(super) at_once: bool,
}

/// All faults to try.
pub(super) fn rows(plan: &FaultPlan, clean: &[Clean]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, (scenario, clean)) in SCENARIOS.iter().zip(clean).enumerate() {
        for (step, (what, reached)) in scenario.steps.iter().zip(&clean.reached).enumerate() {
            let mut add = |fault: Fault, at_once| {
                rows.push(Row {
                    scenario,
                    at,
                    step,
                    fault,
                    at_once,
                });
            };
            for (point, &count) in reached {
                for nth in 1..=count.min(NTH_MAX) {
                    add_at_point(what, point, nth, &mut add);
                }
            }
            for point in clean.in_background(step) {
                add_at_point(what, point, 1, &mut add);
            }
            if !is_request(what) || !plan.only.is_empty() {
                continue;
            }
            for scarce in [Scarce::Bytes, Scarce::Inodes] {
                add(Fault::Full { scarce }, false);
            }
            for sent in [Sent::Head, Sent::HalfOfBody, Sent::All] {
                if sent == Sent::All || World::has_body(what) {
                    add(Fault::Partial { sent }, false);
                    if !what.again.is_empty() {
                        add(Fault::Partial { sent }, true);
                    }
                }
            }
        }
    }
    rows.retain(|row| {
        row.fault
            .point()
            .is_none_or(|point| point.starts_with(&plan.only))
    });
    rows.retain(|row| !plan.is_short || is_in_short(row));
    // The repair goes on without its client, and takes packets away between the requests of a view.
    rows.retain(|row| !row.scenario.loses_packets() || !row.fault.is_hang_up());
    rows
}

fn is_request(step: &Step) -> bool {
    !matches!(step.what, What::Restart | What::Crash)
}

/// The faults at a point that a step reaches.
fn add_at_point(step: &Step, point: &str, nth: u64, add: &mut impl FnMut(Fault, bool)) {
    let point = point.to_owned();
    let kill = Fault::Kill {
        point: point.clone(),
        nth,
    };
    add(kill, false);
    if !is_request(step) {
        return;
    }
    let hang_up = Fault::HangUp { point, nth };
    if !step.again.is_empty() {
        add(hang_up.clone(), true);
    }
    add(hang_up, false);
}

/// Whether the short form has a row. Of those with the same point and kind it tries one after the
/// other until the point is reached.
fn is_in_short(row: &Row) -> bool {
    let is_chosen = match row.fault {
        Fault::Kill { .. } | Fault::HangUp { .. } => true,
        Fault::Partial { sent } => sent == Sent::All,
        Fault::Full { scarce } => scarce == Scarce::Bytes,
    };
    is_chosen && !row.at_once
}
