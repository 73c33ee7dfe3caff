//! Nodes die at each of their requests in turn, before or after it takes effect.

use std::sync::Arc;

use crate::{
    node::Node,
    run::{Run, check, in_paused_time, sealed},
    support::{
        faulty_store::{Death, Faults, FaultyStore},
        world::World,
    },
};

const PACKETS: [u32; 3] = [1, 2, 3];

/// A node that pushes all packets, closes, seals and collects, if it lives. Tells whether it did.
async fn live(run: &Arc<Run>, world: &Arc<World>, name: &str, death: Option<Death>) -> bool {
    let store = FaultyStore::new(world, Faults::default()).dying(death);
    let mut node = Node::new(run, store.clone(), name);
    let work = async {
        node.take_over().await;
        for packet in PACKETS {
            node.append(&[packet]).await;
        }
        node.finish().await;
    };
    tokio::select! {
        biased;
        () = store.killed() => false,
        () = work => true,
    }
}

/// Two nodes die in turn, a third finishes. Tells which of the two came to their end.
async fn play(deaths: [Death; 2]) -> [bool; 2] {
    let world = World::new(0);
    let run = Run::new(0, None);
    let first = live(&run, &world, "first", Some(deaths[0])).await;
    let second = live(&run, &world, "second", Some(deaths[1])).await;
    assert!(live(&run, &world, "third", None).await);
    let seal = sealed(&run, &world).await;
    let tally = check(&run, &world, seal).await;
    let tally = tally.unwrap_or_else(|problem| panic!("{deaths:?}: {problem}"));
    if first {
        assert_eq!(tally.acknowledged, 3, "{deaths:?}");
    }
    [first, second]
}

#[test]
fn nodes_die_at_every_request() {
    let mut plays = 0;
    for is_after in [[false, false], [false, true], [true, false], [true, true]] {
        for first in 0.. {
            let mut first_lived = false;
            for second in 0.. {
                let deaths = [(first, is_after[0]), (second, is_after[1])];
                let deaths = deaths.map(|(request, is_after)| Death { request, is_after });
                let lived = in_paused_time(play(deaths));
                plays += 1;
                first_lived = lived[0];
                if lived[1] {
                    break;
                }
            }
            if first_lived {
                break;
            }
        }
    }
    println!("{plays} plays");
    assert!(plays > 1000, "{plays}");
}
