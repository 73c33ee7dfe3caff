//! Taking a storage over, appending to its chain, closing it.

use bytes::Bytes;
use futures_util::StreamExt;
use storage_format::StorageId;
use uuid::Uuid;

use super::{
    fetching::fetch_seal,
    keys::{chain_folder, number_of, record_key},
    record::{
        Author, Location, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordKind, decode,
        decode_header, encode,
    },
    sequence::Owner,
    walk::Walk,
};
use crate::{Bucket, Creation, NodeName, TierError, nonce::nonce};

/// Who takes a storage over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// The node.
    pub node: NodeName,
    /// What distinguishes its data folder from that of another node with the same name. It is part
    /// of the nonces of its takeovers.
    pub identity: u64,
}

impl Claimant {
    /// A nonce that nobody else has.
    fn nonce(&self) -> Uuid {
        let mut bytes = *nonce().as_bytes();
        bytes[..8].copy_from_slice(&self.identity.to_be_bytes());
        Uuid::from_bytes(bytes)
    }

    /// Whether this data folder made a takeover.
    #[must_use]
    pub fn made(&self, owner: &Owner) -> bool {
        owner.node == self.node
            && owner
                .nonce
                .as_bytes()
                .starts_with(&self.identity.to_be_bytes())
    }
}

/// What a walk along a chain is for.
pub trait Walker: Send {
    /// Takes a record of packets that count.
    ///
    /// # Errors
    /// To end the walk.
    fn packets(&mut self, record: Record) -> Result<(), TierError>;

    /// Whether this node has all packets of the chain elsewhere, and would append them again.
    fn has_packets(&self) -> bool {
        false
    }

    /// Decides, behind the last packets, whether the storage is to be taken over.
    ///
    /// # Errors
    /// To leave it to its owner.
    fn may_claim(&mut self) -> Result<(), TierError> {
        Ok(())
    }
}

impl<F: FnMut(Record) -> Result<(), TierError> + Send> Walker for F {
    fn packets(&mut self, record: Record) -> Result<(), TierError> {
        self(record)
    }
}

/// What a node finds that takes a storage over.
#[derive(Debug)]
pub enum Takeover {
    /// The node owns the storage now, and may append.
    Owned(Chain),
    /// The chain is closed and nobody has sealed it: this node may, from the packets it was given.
    Closed {
        /// Who closed it.
        owner: Owner,
    },
    /// The storage is sealed, with this body. The packets that were given may be only a part.
    Sealed(Bytes),
}

/// Whose storage a node takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Anybody,
    /// Its own, or a new one.
    Itself,
}

/// Whether a chain may be appended to.
#[derive(Debug, Clone)]
enum State {
    Open,
    /// This record, with the next number, was sent, and what became of it is unknown.
    InDoubt(RecordKind, Vec<Bytes>),
    Closed,
    /// Another node has the storage; this is why.
    Superseded(String),
}

/// The chain of a storage that this node owns, as far as it knows.
#[derive(Debug)]
pub struct Chain {
    bucket: Bucket,
    storage: StorageId,
    owner: Owner,
    next: u64,
    state: State,
}

impl Chain {
    /// Takes over the storage, new or not. Passes the packets that count to `on_packets`, in order;
    /// if this fails half-way, or the storage is sealed, they have to be forgotten.
    ///
    /// # Errors
    /// `Superseded` when another node took the storage over at the same time; otherwise when the
    /// store does not answer, a record is damaged, or `on_packets` fails. It may be tried again.
    pub async fn take_over(
        bucket: &Bucket,
        storage: StorageId,
        claimant: &Claimant,
        walker: &mut impl Walker,
    ) -> Result<Takeover, TierError> {
        Self::claim(bucket, (storage, Source::Anybody), claimant, walker).await
    }

    /// As [`Self::take_over`], but not from another node: for a node that comes back.
    ///
    /// # Errors
    /// As [`Self::take_over`]; `Superseded` also when the last owner is another node.
    pub async fn resume(
        bucket: &Bucket,
        storage: StorageId,
        claimant: &Claimant,
        walker: &mut impl Walker,
    ) -> Result<Takeover, TierError> {
        Self::claim(bucket, (storage, Source::Itself), claimant, walker).await
    }

    async fn claim(
        bucket: &Bucket,
        (storage, from): (StorageId, Source),
        claimant: &Claimant,
        walker: &mut impl Walker,
    ) -> Result<Takeover, TierError> {
        // A collected chain would only get one more `own`.
        if let Some(seal) = fetch_seal(bucket, storage).await? {
            return Ok(Takeover::Sealed(seal));
        }
        let claimed = claim(bucket, (storage, from), claimant, walker).await;
        // Again: what was read in front of our `own` may have been sealed and collected meanwhile.
        let decides = matches!(claimed, Ok(_) | Err(TierError::Damaged { .. }));
        if decides && let Some(seal) = fetch_seal(bucket, storage).await? {
            return Ok(Takeover::Sealed(seal));
        }
        claimed
    }

    /// Looks whether another node has taken the storage over, by one request.
    ///
    /// # Errors
    /// `Superseded` when one has, and when the store does not answer.
    pub async fn look(&self) -> Result<(), TierError> {
        self.check_open()?;
        let location = self.location();
        let Some(found) = self
            .bucket
            .get_at_most(&location.key(), RECORD_BYTES_MAX)
            .await?
        else {
            return Ok(());
        };
        let found = decode(&found, location)?;
        if found.epoch < self.owner.epoch {
            return Ok(());
        }
        Err(TierError::Superseded {
            storage: self.storage.to_string(),
            reason: superseded_by(&found.node, found.epoch, found.number),
        })
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> StorageId {
        self.storage
    }

    /// This node, as owner.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The number that the next record will get.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Appends a record of packets: the pieces, one after another, 1 byte to
    /// [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX). When this returns its number, the packets
    /// may be acknowledged. When the future is dropped before, it is in doubt whether they were
    /// written.
    ///
    /// # Errors
    /// `Superseded` when another node has the storage. After other errors of the store the chain
    /// is in doubt, and refuses everything until [`Self::settle`] succeeds.
    pub async fn append(&mut self, payload: &[Bytes]) -> Result<u64, TierError> {
        self.place(RecordKind::Packets, payload).await
    }

    /// Closes the chain: nothing is appended any more, and any node may seal the storage.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn close(&mut self) -> Result<u64, TierError> {
        self.place(RecordKind::Close, &[]).await
    }

    /// Sends the record again that is in doubt, the same bytes under the same number, so that there
    /// is still one append under way. Returns its number; `None` if nothing is in doubt.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn settle(&mut self) -> Result<Option<u64>, TierError> {
        let State::InDoubt(kind, payload) = self.state.clone() else {
            return self.check_open().map(|()| None);
        };
        self.state = State::Open;
        self.place(kind, &payload).await.map(Some)
    }

    async fn place(&mut self, kind: RecordKind, payload: &[Bytes]) -> Result<u64, TierError> {
        loop {
            self.check_open()?;
            let number = self.next;
            let location = self.location();
            let body = encode(location, kind, author(&self.owner), payload)?;
            // Stays so when the create fails, or this future is dropped.
            self.state = State::InDoubt(kind, payload.to_vec());
            fault_point!("tier.chain.sending");
            match self.bucket.create(&location.key(), body).await? {
                Creation::Made => {
                    fault_point!("tier.chain.sent");
                    self.advance(number)?;
                    if kind == RecordKind::Close {
                        self.state = State::Closed;
                    }
                    return Ok(number);
                }
                Creation::Exists(found) => {
                    let found = decode(&found, location)?;
                    if found.epoch >= self.owner.epoch {
                        self.state = State::Superseded(superseded_by(
                            &found.node,
                            found.epoch,
                            found.number,
                        ));
                        continue;
                    }
                    // Void: written by a node that we have superseded.
                    self.advance(number)?;
                }
            }
        }
    }

    fn advance(&mut self, number: u64) -> Result<(), TierError> {
        self.next = following(self.storage, number)?;
        self.state = State::Open;
        Ok(())
    }

    fn check_open(&self) -> Result<(), TierError> {
        let storage = self.storage.to_string();
        match &self.state {
            State::Open => Ok(()),
            State::Closed => Err(TierError::Closed(storage)),
            State::InDoubt(..) => Err(TierError::InDoubt {
                storage,
                number: self.next,
            }),
            State::Superseded(reason) => Err(TierError::Superseded {
                storage,
                reason: reason.clone(),
            }),
        }
    }

    fn location(&self) -> Location {
        Location {
            storage: self.storage,
            number: self.next,
        }
    }
}

fn author(owner: &Owner) -> Author<'_> {
    Author {
        epoch: owner.epoch,
        nonce: owner.nonce,
        node: &owner.node,
    }
}

fn superseded_by(node: &NodeName, epoch: u64, number: u64) -> String {
    format!("node {node} took it over, epoch {epoch}, record {number}; push to that node")
}

/// The number behind a record, or the epoch behind an epoch. No node gets that far.
fn following(storage: StorageId, number: u64) -> Result<u64, TierError> {
    let following = number.checked_add(1);
    let problem = "there is no larger epoch or number";
    following.ok_or_else(|| TierError::damaged(&record_key(storage, number), problem))
}

/// Records behind an end: somebody has removed those between.
struct Hole {
    /// The first record behind it.
    first: Location,
    /// The largest epoch behind it.
    epoch: u64,
}

/// The hole at the end of a walk, if it is one. What was acknowledged behind it would be lost in
/// silence. A list that is late shows nothing, and one that is right shows nothing of a chain that
/// is whole.
async fn hole_at(bucket: &Bucket, end: Location) -> Result<Option<Hole>, TierError> {
    let storage = end.storage;
    let mut behind = bucket.list_after(&chain_folder(storage), Some(&end.key()));
    let mut numbers: Option<(u64, u64)> = None;
    while let Some(object) = behind.next().await.transpose()? {
        // Other objects there are none of the chain.
        let number = number_of(&object.key);
        let number = number.filter(|number| record_key(storage, *number) == object.key);
        if let Some(number) = number {
            let (first, last) = numbers.unwrap_or((number, number));
            numbers = Some((first.min(number), last.max(number)));
        }
    }
    let Some((first, last)) = numbers else {
        return Ok(None);
    };
    // The record may have come while the chain was walked.
    if bucket.head(&end.key()).await?.is_some() {
        return Ok(None);
    }
    let mut epoch = 0;
    for number in [first, last] {
        let location = Location { storage, number };
        let range = 0..RECORD_HEADER_BYTES as u64;
        let header = match bucket.get_range(&location.key(), range).await {
            // Another node collects, so there is a seal: who gets this error looks for it.
            Err(TierError::Gone(key)) => {
                return Err(TierError::damaged(&key, "it was there a moment ago"));
            }
            header => header?,
        };
        epoch = decode_header(&header, location)?.epoch.max(epoch);
    }
    let number = first;
    let first = Location { storage, number };
    Ok(Some(Hole { first, epoch }))
}

/// The largest epoch that the next one has to exceed. A hole is filled only by who has the packets
/// behind it, too: they do not count any more, and are appended again.
async fn epoch_before(
    bucket: &Bucket,
    end: Location,
    walked: u64,
    has_packets: bool,
) -> Result<u64, TierError> {
    let Some(Hole { first, epoch }) = hole_at(bucket, end).await? else {
        return Ok(walked);
    };
    if has_packets {
        tracing::warn!(
            missing = end.key(),
            "records of a chain were removed from the object store; what is behind them is appended \
             again"
        );
        return Ok(epoch.max(walked));
    }
    let problem = format!(
        "it is not there, and `{}` is: restore it, let the node that wrote it append its packets \
         again, or remove what is behind it to give those packets up",
        first.key()
    );
    Err(TierError::damaged(&end.key(), problem))
}

/// Walks to the end of the chain, and puts an `own` there.
async fn claim(
    bucket: &Bucket,
    (storage, from): (StorageId, Source),
    claimant: &Claimant,
    walker: &mut impl Walker,
) -> Result<Takeover, TierError> {
    let nonce = claimant.nonce();
    let mut walk = Walk::new(bucket, storage);
    loop {
        if !walk.sequence.is_closed {
            walk.run(&mut |record| walker.packets(record)).await?;
        }
        if walk.sequence.is_closed
            && let Some(owner) = walk.sequence.owner
        {
            return Ok(Takeover::Closed { owner });
        }
        if from == Source::Itself
            && let Some(last) = walk.sequence.owner.as_ref()
            && !claimant.made(last)
        {
            let (node, epoch, number) = (&last.node, last.epoch, last.number);
            return Err(TierError::Superseded {
                storage: storage.to_string(),
                reason: superseded_by(node, epoch, number),
            });
        }
        let number = walk.next;
        let location = Location { storage, number };
        let epoch = walk.sequence.epoch();
        let epoch = epoch_before(bucket, location, epoch, walker.has_packets()).await?;
        walker.may_claim()?;
        let owner = Owner {
            epoch: following(storage, epoch)?,
            node: claimant.node.clone(),
            nonce,
            number,
        };
        let own = encode(location, RecordKind::Own, author(&owner), &[])?;
        let found = match bucket.create(&location.key(), own).await? {
            Creation::Made => {
                fault_point!("tier.chain.owned");
                return Ok(Takeover::Owned(Chain {
                    bucket: bucket.clone(),
                    storage,
                    owner,
                    next: following(storage, number)?,
                    state: State::Open,
                }));
            }
            Creation::Exists(found) => decode(&found, location)?,
        };
        if found.kind == RecordKind::Own && found.epoch >= owner.epoch {
            return Err(TierError::Superseded {
                storage: storage.to_string(),
                reason: superseded_by(&found.node, found.epoch, found.number),
            });
        }
        // The owner before was faster: its record counts, and the next number is tried.
        let _ = walk.step(found, &mut |record| walker.packets(record))?;
    }
}
