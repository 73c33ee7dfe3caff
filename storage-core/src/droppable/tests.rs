use std::sync::Arc;

use futures_util::FutureExt as _;
use storage_format::{StreamPosition, frame::Facts};

use super::*;
use crate::{ByteBudget, NewPacket};

const PACKET: usize = 100;

/// A budget for 16 packets, and the droppable packets of two storages.
struct World {
    droppable: Arc<Droppable>,
    budget: ByteBudget,
    counters: Arc<Counters>,
    signals: [Arc<LaneSignal>; 2],
}

fn storage(at: usize) -> StorageId {
    StorageId::from_bytes([at as u8 + 1; 16])
}

impl World {
    fn new() -> Self {
        let counters = Arc::<Counters>::default();
        let max = 16 * PACKET as u64;
        let droppable = Arc::new(Droppable::new(max, Arc::clone(&counters)));
        let budget = ByteBudget::new(
            max,
            max,
            Arc::<Droppable>::clone(&droppable),
            Arc::clone(&counters),
        );
        let signals = [Arc::<LaneSignal>::default(), Arc::default()];
        signals.iter().for_each(|signal| droppable.open(signal));
        Self {
            droppable,
            budget,
            counters,
            signals,
        }
    }

    fn push(&self, stream: &str, positions: &[(u64, u64)]) -> Push {
        let packets = positions.iter().map(|(epoch, sequence)| {
            NewPacket::new(
                StreamPosition::new(*epoch, *sequence),
                vec![1; PACKET].into(),
                Facts::default(),
            )
        });
        let bytes = (positions.len() * PACKET) as u64;
        Push {
            agent: "agent".parse().unwrap(),
            stream: stream.parse().unwrap(),
            packets: packets.collect(),
            permit: self.budget.try_acquire(bytes).unwrap(),
        }
    }

    fn offer(&self, at: usize, stream: &str, positions: &[(u64, u64)]) -> Accepted {
        let push = self.push(stream, positions);
        self.droppable
            .offer(
                (storage(at), &self.signals[at]),
                push,
                StreamPosition::default(),
                false,
            )
            .unwrap()
    }

    /// Streams and numbers of packets that were dropped.
    fn dropped(&self, at: usize) -> Vec<(String, u64)> {
        let dropped = self.droppable.dropped(storage(at)).into_iter();
        dropped
            .map(|each| (each.stream.to_string(), each.packets))
            .collect()
    }

    /// The pushes that the writer of a storage may accept.
    fn take(&self, at: usize) -> Vec<Handed> {
        std::iter::from_fn(|| self.droppable.take(storage(at), false)).collect()
    }
}

#[test]
fn the_oldest_packets_are_dropped_first_and_counted_by_stream() {
    let world = World::new();
    for sequence in 0..6 {
        world.offer(0, "a", &[(1, sequence)]);
        world.offer(1, "b", &[(1, sequence)]);
    }
    // Four more packets fit next to the twelve.
    let mut waiting = world.budget.try_acquire(4 * PACKET as u64).unwrap();
    assert_eq!((world.dropped(0), world.dropped(1)), (vec![], vec![]));
    // A push whose agent waits gets the space of the oldest packets, of whatever storage.
    let more = world.budget.try_acquire(3 * PACKET as u64).unwrap();
    assert_eq!(world.dropped(0), [("a".to_owned(), 2)]);
    assert_eq!(world.dropped(1), [("b".to_owned(), 1)]);
    // So does a droppable push.
    world.offer(0, "a", &[(1, 6)]);
    assert_eq!(world.dropped(1), [("b".to_owned(), 2)]);
    // A request for more than can be dropped drops nothing.
    assert!(world.budget.try_acquire(10 * PACKET as u64).is_err());
    assert_eq!(world.counters.packets_dropped.get(), 4);
    assert_eq!(world.counters.dropped_bytes.get(), 4 * PACKET as u64);
    drop((waiting.split(1), waiting, more));
    assert_eq!(world.droppable.waiting(storage(0)), (5, 5 * PACKET as u64));
}

#[test]
fn writers_leave_space_for_agents_that_wait() {
    let world = World::new();
    for sequence in 0..8 {
        world.offer(0, "a", &[(1, sequence)]);
        world.offer(1, "b", &[(1, sequence)]);
    }
    // Each writer gets an eighth, and more only when that is durable.
    let mut first = world.take(0);
    let second = world.take(1);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(world.take(0).is_empty());
    let rest = world.budget.try_acquire(12 * PACKET as u64);
    assert!(rest.is_ok(), "the other packets give way");
    assert_eq!(world.dropped(0), [("a".to_owned(), 6)]);
    // Packets that the disk refuses count as dropped too.
    first.remove(0).in_writer.ended([false].into_iter());
    assert_eq!(world.dropped(0), [("a".to_owned(), 7)]);
}

#[test]
fn a_stream_continues_after_dropped_packets() {
    let world = World::new();
    world.offer(0, "a", &[(1, 0), (1, 1)]);
    world.offer(0, "a", &[(1, 2), (1, 3)]);
    // The two oldest are dropped: the writer gets the end of the gap, and nothing else.
    let all = world.budget.try_acquire(14 * PACKET as u64).unwrap();
    assert_eq!(world.dropped(0), [("a".to_owned(), 2)]);
    let taken = world.take(0);
    assert_eq!(taken[0].push.packets[0].position.sequence, 2);
    assert_eq!(taken[0].gaps, Gaps::UpTo(StreamPosition::new(1, 2)));
    drop((all, taken));
    // A gap made by a producer is refused with the expected position; a repeat is a duplicate.
    let accepted = world.offer(0, "a", &[(1, 5)]);
    let gap = StorageError::SequenceGap {
        epoch: 1,
        expected: 4,
        found: 5,
    };
    assert_eq!(accepted.refused.unwrap().to_string(), gap.to_string());
    let accepted = world.offer(0, "a", &[(1, 3), (1, 4)]);
    let known: Vec<_> = accepted.packets.iter().map(|p| p.is_duplicate).collect();
    assert_eq!(known, [true, false]);
    let stale = world.offer(0, "a", &[(0, 0)]);
    assert!(matches!(
        stale.refused,
        Some(StorageError::EpochStale { .. })
    ));
    // All packets after those in the writer were dropped: they may be pushed again, and an agent
    // that waits may continue after them.
    let all = world.budget.try_acquire(16 * PACKET as u64).unwrap();
    drop(all);
    let wanted = world.push("a", &[(1, 5)]);
    let lost_until = world.droppable.pass(storage(0), &wanted, false);
    assert_eq!(lost_until, Some(StreamPosition::new(1, 5)));
    drop(wanted);
    let world = World::new();
    world.offer(0, "a", &[(1, 0)]);
    drop(world.budget.try_acquire(16 * PACKET as u64).unwrap());
    let again = world.offer(0, "a", &[(1, 0)]);
    assert!(!again.packets[0].is_duplicate);
}

#[test]
fn packets_that_wait_for_a_deleted_storage_are_dropped() {
    let world = World::new();
    world.offer(0, "a", &[(1, 0)]);
    world.offer(1, "b", &[(1, 0)]);
    world.droppable.close(&world.signals[0]);
    let push = world.push("a", &[(1, 1)]);
    let refused = world.droppable.offer(
        (storage(0), &world.signals[0]),
        push,
        StreamPosition::default(),
        false,
    );
    assert!(refused.is_err());
    drop(refused);
    world.droppable.forget(storage(0));
    assert_eq!(world.dropped(0), []);
    assert_eq!(world.droppable.waiting(storage(0)), (0, 0));
    assert_eq!(world.take(1).len(), 1);
    assert!(world.budget.try_acquire(16 * PACKET as u64).is_ok());
}

/// A writer ends, and another one begins with what is durable then: the new signal is woken, and a
/// position that the first one had is no duplicate for the second. What was dropped stays counted.
#[test]
fn a_later_writer_begins_with_what_is_durable() {
    let mut world = World::new();
    world.offer(0, "a", &[(1, 0), (1, 1)]);
    drop(world.budget.try_acquire(16 * PACKET as u64).unwrap());
    world.offer(0, "a", &[(1, 2)]);
    world.offer(0, "b", &[(1, 0)]);
    drop(world.take(0));
    let before = world.droppable.dropped(storage(0));
    world.droppable.close(&world.signals[0]);
    world.droppable.end(storage(0));
    assert_eq!(world.droppable.dropped(storage(0)), before);
    assert_eq!(world.droppable.state.lock().lanes.len(), 0);
    world.signals[0] = Arc::default();
    world.droppable.open(&world.signals[0]);
    let accepted = world.offer(0, "a", &[(1, 2)]);
    assert!(!accepted.packets[0].is_duplicate);
    let woken = world.signals[0].wake.notified().now_or_never();
    assert!(woken.is_some(), "the signal of the later writer is woken");
    assert_eq!(world.take(0).len(), 1);
    world.offer(0, "a", &[(1, 3)]);
    drop(world.budget.try_acquire(16 * PACKET as u64).unwrap());
    assert_eq!(world.dropped(0), [("a".to_owned(), 3)]);
    world.droppable.forget(storage(0));
    assert_eq!(world.dropped(0), []);
}
