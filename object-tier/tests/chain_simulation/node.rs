//! A node: takes the storage over, appends what producers push, closes, seals, collects.
//!
//! It does what a server does with a chain, and remembers nothing when it dies.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use object_tier::{
    Bucket, Creation, NodeName, TierError,
    chain::{
        Chain, Claimant, RECORD_HEADER_BYTES, Record, Takeover, chain_folder, collect, seal_key,
    },
};
use storage_format::StorageId;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    run::{Run, Sabotage},
    support::faulty_store::FaultyStore,
};

/// What a producer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The packet is in the chain.
    Taken,
    /// Not known, or not by this node.
    TryAgain,
    /// The storage accepts nothing more.
    Sealed,
}

/// A packet, and whom to tell.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) packet: u32,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What a node knows of the storage.
#[derive(Debug)]
enum Knowledge {
    Nothing,
    Owned(Box<Chain>, Vec<u32>),
    Sealed,
}

/// One life of a node, from its start to its death.
#[derive(Debug)]
pub(crate) struct Node {
    run: Arc<Run>,
    bucket: Bucket,
    /// The same store, understood.
    collecting: Bucket,
    name: NodeName,
    knowledge: Knowledge,
}

impl Node {
    pub(crate) fn new(run: &Arc<Run>, store: FaultyStore, name: &str) -> Self {
        Self {
            run: Arc::clone(run),
            collecting: Bucket::new(Arc::new(store.understanding()), "", 8),
            bucket: Bucket::new(Arc::new(store), "", 8),
            name: NodeName::new(name).unwrap(),
            knowledge: Knowledge::Nothing,
        }
    }

    /// Serves until nobody pushes any more.
    pub(crate) async fn serve(&mut self, pushes: &mut mpsc::Receiver<Push>) {
        loop {
            let patience = self.run.time(2_000..20_000);
            match tokio::time::timeout(patience, pushes.recv()).await {
                Ok(Some(push)) => {
                    let mut batch = vec![push];
                    while batch.len() < 3
                        && let Ok(push) = pushes.try_recv()
                    {
                        batch.push(push);
                    }
                    self.receive(batch).await;
                }
                Ok(None) => return,
                Err(_) => self.idle().await,
            }
        }
    }

    /// Without pushes a node closes the storage now and then, or takes it from another.
    async fn idle(&mut self) {
        match &mut self.knowledge {
            Knowledge::Nothing if self.run.hits(100) => self.take_over().await,
            Knowledge::Owned(..) if self.run.hits(50) => self.finish().await,
            Knowledge::Owned(chain, _) if self.run.hits(50) => {
                // Another node may seal.
                if let Err(error) = chain.close().await {
                    self.run.count(&error);
                }
                self.knowledge = Knowledge::Nothing;
            }
            _ => {}
        }
    }

    async fn receive(&mut self, batch: Vec<Push>) {
        if matches!(self.knowledge, Knowledge::Nothing) && self.run.hits(600) {
            self.take_over().await;
        }
        let packets: Vec<_> = batch.iter().map(|push| push.packet).collect();
        let answer = match self.knowledge {
            Knowledge::Sealed => Answer::Sealed,
            Knowledge::Nothing => Answer::TryAgain,
            Knowledge::Owned(..) => self.append(&packets).await,
        };
        for push in batch {
            // The producer may have given up.
            let _ = push.answer.send(answer);
        }
    }

    pub(crate) async fn append(&mut self, packets: &[u32]) -> Answer {
        let Knowledge::Owned(chain, content) = &mut self.knowledge else {
            return Answer::TryAgain;
        };
        let sabotage = self.run.sabotage;
        let is_known = |packet: &u32| content.contains(packet);
        let takes_twice = sabotage == Some(Sabotage::RepeatsAppended);
        let mut new: Vec<u32> = packets.to_vec();
        new.retain(|packet| takes_twice || !is_known(packet));
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let mut appended = chain.append(&[payload(&new)]).await.map(Some);
            let is_patient = self.run.hits(600);
            for _ in 0..8 {
                if !is_patient || !matches!(appended, Err(TierError::Store { .. })) {
                    break;
                }
                appended = chain.settle().await;
                let is_settled = appended.is_ok();
                self.run
                    .tally(|tally| tally.settled += u64::from(is_settled));
            }
            match appended {
                Ok(_) => content.extend(new),
                Err(error) => {
                    self.run.count(&error);
                    self.knowledge = Knowledge::Nothing;
                    let is_doubt = matches!(error, TierError::Store { .. });
                    self.run
                        .tally(|tally| tally.in_doubt += u64::from(is_doubt));
                    if !is_doubt || sabotage != Some(Sabotage::DoubtAcknowledged) {
                        return Answer::TryAgain;
                    }
                }
            }
        }
        self.run.acknowledge(packets);
        Answer::Taken
    }

    pub(crate) async fn take_over(&mut self) {
        let mut content = Vec::new();
        let mut on_packets = |record: Record| {
            content.extend(packets_of(&record.payload));
            Ok(())
        };
        let storage = self.run.storage;
        let claimant = Claimant {
            node: self.name.clone(),
            identity: 7,
        };
        let taken = Chain::take_over(&self.bucket, storage, &claimant, &mut on_packets).await;
        match taken {
            Ok(Takeover::Owned(chain)) => {
                self.run.tally(|tally| tally.takeovers += 1);
                self.knowledge = Knowledge::Owned(Box::new(chain), content);
            }
            Ok(Takeover::Closed { .. }) => {
                self.run.tally(|tally| tally.found_closed += 1);
                self.seal(&content).await;
            }
            Ok(Takeover::Sealed(_)) => self.collect().await,
            Err(error) => self.run.count(&error),
        }
    }

    /// Closes the chain, seals the storage, collects.
    pub(crate) async fn finish(&mut self) {
        let knowledge = std::mem::replace(&mut self.knowledge, Knowledge::Nothing);
        if let Knowledge::Owned(mut chain, content) = knowledge {
            match chain.close().await {
                Ok(_) => self.seal(&content).await,
                Err(error) => self.run.count(&error),
            }
        }
    }

    async fn seal(&mut self, content: &[u32]) {
        let storage = self.run.storage;
        if self.run.sabotage == Some(Sabotage::CollectsBeforeSeal) {
            // Owns and closes have no payload.
            self.remove_all(storage, RECORD_HEADER_BYTES as u64 + 1)
                .await;
        }
        let mut body = Uuid::new_v4().as_bytes().to_vec();
        body.extend_from_slice(&payload(content));
        let (key, body) = (seal_key(storage), Bytes::from(body));
        let made = match self.run.sabotage {
            Some(Sabotage::SealOverwrites) => {
                self.bucket.put(&key, body).await.map(|()| Creation::Made)
            }
            _ => self.bucket.create(&key, body).await,
        };
        match made {
            Ok(made) => {
                let is_first = made == Creation::Made;
                self.run.tally(|tally| tally.seals += u64::from(is_first));
                self.collect().await;
            }
            Err(error) => self.run.count(&error),
        }
    }

    async fn collect(&mut self) {
        self.knowledge = Knowledge::Sealed;
        let storage = self.run.storage;
        match collect(&self.collecting, storage).await {
            Ok(collected) => {
                assert_eq!(collected.damaged, 0);
                self.run.tally(|tally| tally.collected += collected.removed);
            }
            Err(error) => self.run.count(&error),
        }
        if self.run.sabotage == Some(Sabotage::OwnsCollected) {
            self.remove_all(storage, 0).await;
        }
    }

    /// What no node may do.
    async fn remove_all(&self, storage: StorageId, length_min: u64) {
        let Ok(listed) = self.bucket.list_all(&chain_folder(storage)).await else {
            return;
        };
        for record in listed.iter().filter(|record| record.length >= length_min) {
            // The sabotage need not be thorough.
            let _ = self.bucket.delete(&record.key).await;
        }
    }

    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.knowledge, Knowledge::Sealed)
    }
}

/// Numbers of packets as the payload of a record.
pub(crate) fn payload(packets: &[u32]) -> Bytes {
    let bytes: Vec<u8> = packets
        .iter()
        .flat_map(|packet| packet.to_le_bytes())
        .collect();
    bytes.into()
}

pub(crate) fn packets_of(payload: &[u8]) -> impl Iterator<Item = u32> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    payload.chunks(4).map(number)
}

/// How long a producer waits for an answer.
pub(crate) const PRODUCER_PATIENCE: Duration = Duration::from_secs(20);
