//! What may happen next in a state.

use crate::{
    rules::{Epochs, Form},
    state::{Flight, Key, Kind, Node, Phase, Progress, Record, Seal, State},
};

/// What happened, for the description of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Start,
    TakeOver { node: u8 },
    Walk { node: u8 },
    Superseded { node: u8 },
    Impossible { node: u8 },
    FindClosed { node: u8 },
    Send { node: u8, number: u8 },
    Look { node: u8 },
    CheckSeal { node: u8 },
    Repeat { node: u8, packet: u8 },
    Seal { node: u8 },
    SealExists { node: u8 },
    Collect { number: u8 },
    Apply { key: Key, record: Record },
    ApplyAndKeep { key: Key, record: Record },
}

/// Calls `visit` for every state that may follow.
pub(crate) fn followers(form: &Form, state: &State, visit: &mut impl FnMut(Step, State)) {
    for index in 0..state.nodes.len() {
        match state.nodes[index].phase {
            Phase::Absent | Phase::Stopped | Phase::Ended | Phase::Broken => {}
            Phase::Idle => take_over(state, index, visit),
            Phase::Walking if state.nodes[index].flights.is_empty() => {
                walk(form, state, index, visit);
            }
            _ => work(form, state, index, visit),
        }
    }
    deliver(state, visit);
}

fn take_over(state: &State, index: usize, visit: &mut impl FnMut(Step, State)) {
    let mut after = *state;
    let node = &mut after.nodes[index];
    node.phase = Phase::Walking;
    visit(Step::TakeOver { node: node.name }, after);
}

fn walk(form: &Form, state: &State, index: usize, visit: &mut impl FnMut(Step, State)) {
    let mut after = *state;
    let node = &mut after.nodes[index];
    let number = node.next;
    // With a sequence for each epoch, a node reads that of the epoch before.
    let before = node.epoch.saturating_sub(1);
    let step = match state.get(form.key(before, number)) {
        Some(found) => form.pass(node, found, state.seal.is_some()),
        None => {
            if form.epochs == Epochs::Chosen {
                node.epoch = node.newest() + 1;
            }
            let (node, own) = (node.name, Record::new(node, Kind::Own, 0));
            send(form, &mut after, index, own);
            Step::Send { node, number }
        }
    };
    visit(step, after);
}

/// Sends a record to the next number.
fn send(form: &Form, state: &mut State, index: usize, record: Record) {
    let node = &mut state.nodes[index];
    let flight = Flight {
        number: node.next,
        record,
        progress: Progress::Sent,
    };
    node.next += 1;
    node.flights.push(flight);
    let key = form.key_sent(node.epoch, &flight);
    state.network.insert((key, record));
}

fn work(form: &Form, state: &State, index: usize, visit: &mut impl FnMut(Step, State)) {
    let node = &state.nodes[index];
    for (flight_index, flight) in node.flights.items().iter().enumerate() {
        match flight.progress {
            Progress::Next => send_again(form, state, index, flight_index, visit),
            Progress::Sent => {
                if let Some(found) = state.get(form.key_sent(node.epoch, flight)) {
                    let mut after = *state;
                    form.learn(&mut after, index, flight_index, found);
                    visit(Step::Look { node: node.name }, after);
                }
            }
            Progress::Won | Progress::Lost => {}
        }
    }
    match node.phase {
        Phase::Checking if node.flights.is_empty() => {
            let mut after = *state;
            after.nodes[index].phase = match state.seal {
                Some(_) => Phase::Stopped,
                None => Phase::Owning,
            };
            visit(Step::CheckSeal { node: node.name }, after);
        }
        Phase::Owning => own(form, state, index, visit),
        Phase::Sealing => seal(state, index, visit),
        Phase::Collecting => collect(form, state, visit),
        _ => {}
    }
}

fn send_again(
    form: &Form,
    state: &State,
    index: usize,
    flight_index: usize,
    visit: &mut impl FnMut(Step, State),
) {
    let mut after = *state;
    let node = &mut after.nodes[index];
    let mut flight = node.flights.items()[flight_index];
    flight.progress = Progress::Sent;
    node.flights.replace(flight_index, flight);
    let (name, epoch, number) = (node.name, node.epoch, flight.number);
    let key = form.key(epoch, number);
    after.network.insert((key, flight.record));
    visit(Step::Send { node: name, number }, after);
}

fn own(form: &Form, state: &State, index: usize, visit: &mut impl FnMut(Step, State)) {
    let node = &state.nodes[index];
    let (name, number, packet) = (node.name, node.next, node.packet);
    if node.has_packets() && node.knows(packet) {
        let mut after = *state;
        after.nodes[index].packet += 1;
        after.acknowledge(packet);
        let step = Step::Repeat { node: name, packet };
        visit(step, after);
        return;
    }
    let step = Step::Send { node: name, number };
    if node.has_packets() && may_send(form, node, packet) {
        let mut after = *state;
        after.nodes[index].packet += 1;
        let record = Record::new(node, Kind::Packet, packet);
        send(form, &mut after, index, record);
        visit(step, after);
    }
    if node.flights.is_empty() {
        let mut after = *state;
        let node = &mut after.nodes[index];
        node.phase = Phase::Closing;
        node.packet = node.packets_end;
        let record = Record::new(node, Kind::Close, 0);
        send(form, &mut after, index, record);
        visit(step, after);
    }
}

fn may_send(form: &Form, node: &Node, packet: u8) -> bool {
    let flights = node.flights.items();
    let waits =
        |flight: &Flight| flight.record.packet == packet || flight.progress == Progress::Next;
    flights.len() < form.under_way && !flights.iter().any(waits)
}

fn seal(state: &State, index: usize, visit: &mut impl FnMut(Step, State)) {
    let mut after = *state;
    let node = &mut after.nodes[index];
    let (name, epoch) = (node.name, node.epoch);
    if state.seal.is_some() {
        node.phase = Phase::Ended;
        visit(Step::SealExists { node: name }, after);
        return;
    }
    node.phase = Phase::Collecting;
    after.seal = Some(Seal {
        epoch,
        content: node.content,
    });
    visit(Step::Seal { node: name }, after);
}

/// Removes one record, whichever.
fn collect(form: &Form, state: &State, visit: &mut impl FnMut(Step, State)) {
    for (place, (key, record)) in state.store.items().iter().enumerate() {
        if form.is_collected(state, *key, *record) {
            let mut after = *state;
            after.store.remove(place);
            visit(Step::Collect { number: key.number }, after);
        }
    }
}

/// The network applies a request that is under way, once or with a repetition to come.
fn deliver(state: &State, visit: &mut impl FnMut(Step, State)) {
    for (place, (key, record)) in state.network.items().iter().copied().enumerate() {
        let mut kept = *state;
        if state.get(key).is_none() {
            kept.store.insert((key, record));
        }
        let mut after = kept;
        after.network.remove(place);
        visit(Step::Apply { key, record }, after);
        if state.duplicates > 0 {
            kept.duplicates -= 1;
            visit(Step::ApplyAndKeep { key, record }, kept);
        }
    }
}
