//! One run: three nodes, producers, faults, a finish, and what must be true in the end.

use std::{collections::BTreeSet, ops::Range, sync::Arc, time::Duration};

use object_tier::{
    TierError,
    chain::{chain_folder, seal_key},
};
use parking_lot::Mutex;
use storage_format::StorageId;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    node::{Answer, Node, PRODUCER_PATIENCE, Push, packets_of},
    support::{
        faulty_store::{Death, Faults, FaultyStore, LATEST, Misunderstanding},
        random::Random,
        world::World,
    },
};

/// A rule that the nodes of a run break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Every node numbers its records by itself.
    OwnSequence,
    /// A create that finds another record counts as done.
    ExistingCounts,
    /// Who takes over does not see the seal.
    SealUnseen,
    /// The collection removes owns and closes, too.
    OwnsCollected,
    /// Records are removed before the seal is there.
    CollectsBeforeSeal,
    /// An append without an answer is acknowledged.
    DoubtAcknowledged,
    /// A packet that is known is appended again.
    RepeatsAppended,
    /// The seal is written by a put.
    SealOverwrites,
}

/// What happened, to see that a run was worth it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) acknowledged: u64,
    pub(crate) takeovers: u64,
    pub(crate) superseded: u64,
    pub(crate) in_doubt: u64,
    /// Appends that were sent again, and then known.
    pub(crate) settled: u64,
    pub(crate) failures: u64,
    pub(crate) found_closed: u64,
    pub(crate) seals: u64,
    pub(crate) collected: u64,
    pub(crate) deaths: u64,
    /// An error that no node may see.
    pub(crate) impossible: Option<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.takeovers += other.takeovers;
        self.superseded += other.superseded;
        self.in_doubt += other.in_doubt;
        self.settled += other.settled;
        self.failures += other.failures;
        self.found_closed += other.found_closed;
        self.seals += other.seals;
        self.collected += other.collected;
        self.deaths += other.deaths;
    }
}

/// What all nodes and producers of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) storage: StorageId,
    pub(crate) sabotage: Option<Sabotage>,
    random: Mutex<Random>,
    acknowledged: Mutex<BTreeSet<u32>>,
    tally: Mutex<Tally>,
}

impl Run {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> Arc<Self> {
        Arc::new(Self {
            storage: StorageId::from_bytes([4; 16]),
            sabotage,
            random: Mutex::new(Random::new(!seed)),
            acknowledged: Mutex::default(),
            tally: Mutex::default(),
        })
    }

    pub(crate) fn hits(&self, count: u64) -> bool {
        self.random.lock().hits(count)
    }

    fn below(&self, end: u64) -> u64 {
        self.random.lock().below(end)
    }

    pub(crate) fn time(&self, range: Range<u64>) -> Duration {
        self.random.lock().time(range)
    }

    pub(crate) fn acknowledge(&self, packets: &[u32]) {
        self.acknowledged.lock().extend(packets);
    }

    pub(crate) fn tally(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock());
    }

    pub(crate) fn count(&self, error: &TierError) {
        self.tally(|tally| match error {
            TierError::Superseded { .. } => tally.superseded += 1,
            TierError::Store { .. } => tally.failures += 1,
            TierError::Closed(_) | TierError::InDoubt { .. } => {}
            other => tally.impossible = Some(other.to_string()),
        });
    }

    /// How this node misunderstands the store.
    fn misunderstanding(&self, name: &str) -> Misunderstanding {
        match self.sabotage {
            Some(Sabotage::OwnSequence) => Misunderstanding::OwnFolder("chain", name.to_owned()),
            Some(Sabotage::ExistingCounts) => Misunderstanding::ExistingIsMade,
            Some(Sabotage::SealUnseen) => Misunderstanding::Blind("/seal"),
            _ => Misunderstanding::None,
        }
    }

    fn store(&self, world: &Arc<World>, faults: Faults, name: &str) -> FaultyStore {
        FaultyStore::new(world, faults).misunderstanding(self.misunderstanding(name))
    }
}

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const PRODUCERS: u32 = 3;
const PACKETS: u32 = 4;

/// Runs a seed; an error says what was violated.
pub(crate) fn run_seed(seed: u64, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    in_paused_time(play(seed, sabotage))
}

pub(crate) fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

async fn play(seed: u64, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    let world = World::new(seed);
    let run = Run::new(seed, sabotage);
    let (mut doors, mut tasks) = (Vec::new(), Vec::new());
    for name in NODES {
        let (door, pushes) = mpsc::channel(8);
        doors.push(door);
        tasks.push(tokio::spawn(machine(
            Arc::clone(&run),
            Arc::clone(&world),
            name,
            pushes,
        )));
    }
    let produce = |first| tokio::spawn(producer(Arc::clone(&run), doors.clone(), first * PACKETS));
    let producers: Vec<_> = (0..PRODUCERS).map(produce).collect();
    tokio::time::sleep(run.time(10_000..200_000)).await;
    let seal = finish(&run, &world).await;
    // Nodes that know nothing of it go on; what is late arrives.
    tokio::time::sleep(LATEST).await;
    stop(producers).await;
    stop(tasks).await;
    tokio::time::sleep(LATEST).await;
    check(&run, &world, seal).await
}

async fn stop(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        if let Err(error) = task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// One node after another at the same address.
async fn machine(
    run: Arc<Run>,
    world: Arc<World>,
    name: &'static str,
    mut pushes: mpsc::Receiver<Push>,
) {
    loop {
        let death = run.hits(600).then(|| Death {
            request: run.below(60),
            is_after: run.hits(500),
        });
        let store = run.store(&world, Faults::storm(), name).dying(death);
        let mut node = Node::new(&run, store.clone(), name);
        tokio::select! {
            biased;
            () = store.killed() => run.tally(|tally| tally.deaths += 1),
            () = node.serve(&mut pushes) => return,
        }
        tokio::time::sleep(run.time(10..5_000)).await;
    }
}

/// Pushes its packets one after another, each until it is taken.
async fn producer(run: Arc<Run>, doors: Vec<mpsc::Sender<Push>>, first: u32) {
    let mut door = 0;
    for packet in first..first + PACKETS {
        loop {
            let (answer, answered) = oneshot::channel();
            let push = Push { packet, answer };
            // A full door is a node that is slow.
            let _ = timeout(PRODUCER_PATIENCE, doors[door].send(push)).await;
            match timeout(PRODUCER_PATIENCE, answered).await {
                Ok(Ok(Answer::Taken)) => break,
                Ok(Ok(Answer::Sealed)) => return,
                _ => {}
            }
            door = usize::try_from(run.below(doors.len() as u64)).unwrap();
            tokio::time::sleep(run.time(10..3_000)).await;
        }
        tokio::time::sleep(run.time(0..20_000)).await;
    }
}

/// A node on a good day makes an end.
async fn finish(run: &Arc<Run>, world: &Arc<World>) -> Option<Vec<u8>> {
    let store = run.store(world, Faults::default(), "last");
    let mut node = Node::new(run, store, "last");
    for _ in 0..50 {
        node.take_over().await;
        node.finish().await;
        if node.is_sealed() {
            break;
        }
    }
    sealed(run, world).await
}

/// The body of the seal.
pub(crate) async fn sealed(run: &Run, world: &Arc<World>) -> Option<Vec<u8>> {
    let seal = honest(world).get(&seal_key(run.storage)).await.unwrap();
    seal.map(|seal| seal.to_vec())
}

fn honest(world: &Arc<World>) -> object_tier::Bucket {
    let store = FaultyStore::new(world, Faults::default());
    object_tier::Bucket::new(Arc::new(store), "", 8)
}

pub(crate) async fn check(
    run: &Run,
    world: &Arc<World>,
    seal: Option<Vec<u8>>,
) -> Result<Tally, String> {
    let seals = world.seals();
    let bucket = honest(world);
    let now = bucket.get(&seal_key(run.storage)).await.unwrap();
    let seal = seal.ok_or("there is no seal")?;
    if seals.len() != 1 || now.is_none_or(|now| now != seal) {
        return Err(format!(
            "the seal has changed: {} were written",
            seals.len()
        ));
    }
    let sealed: Vec<u32> = packets_of(&seal[16..]).collect();
    let distinct: BTreeSet<u32> = sealed.iter().copied().collect();
    if distinct.len() != sealed.len() {
        return Err(format!("a packet is in the seal twice: {sealed:?}"));
    }
    let acknowledged = run.acknowledged.lock().clone();
    let lost: Vec<_> = acknowledged.difference(&distinct).collect();
    if !lost.is_empty() {
        return Err(format!(
            "{lost:?} were acknowledged and are not in the seal {sealed:?}"
        ));
    }
    // Whatever came late, one more collection removes it.
    let collected = object_tier::chain::collect(&bucket, run.storage).await;
    let collected = collected.map_err(|error| error.to_string())?;
    let left = bucket.list_all(&chain_folder(run.storage)).await;
    let left = left.map_err(|error| error.to_string())?;
    if left.len() as u64 != collected.kept {
        return Err(format!(
            "{collected:?}, and {} records are left",
            left.len()
        ));
    }
    let mut tally = run.tally.lock().clone();
    if let Some(error) = tally.impossible {
        return Err(error);
    }
    tally.acknowledged = acknowledged.len() as u64;
    Ok(tally)
}
