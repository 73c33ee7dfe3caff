//! An object store in memory that does what stores and networks do on a bad day, by a seed.
//!
//! Requests are refused, delayed, or stall for a minute; a write takes effect although its answer
//! is lost, or long after its client gave up, or twice; bodies are cut; lists are late; a conflict
//! looks like an existing object. All handles of a [`World`] share its objects. A handle can be
//! told to die at its n-th request: the request never ends, and [`FaultyStore::killed`] does, so
//! that the test drops what waits for it. Time is that of tokio; tests pause it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, path::Path,
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::world::World;

/// How often each fault happens, of a thousand requests that it may happen to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Answered with an error, without an effect.
    pub(crate) refused: u64,
    /// A create is answered as if the object existed, without an effect.
    pub(crate) conflict: u64,
    /// Takes effect; the answer never comes.
    pub(crate) answer_lost: u64,
    /// Takes effect after the client gave up, up to two minutes later.
    pub(crate) late: u64,
    /// Takes effect once more, up to two minutes later.
    pub(crate) repeated: u64,
    /// The client stalls for up to a minute before it sends.
    pub(crate) stalled: u64,
    /// Half of a body comes.
    pub(crate) cut: u64,
    /// A write that arrives later or never, and for up to half a minute no request is answered.
    pub(crate) outage: u64,
    /// A list lacks what was written in the last ten seconds.
    pub(crate) old_list: u64,
}

impl Faults {
    /// Everything, often.
    pub(crate) fn storm() -> Self {
        Self {
            refused: 60,
            conflict: 40,
            answer_lost: 50,
            late: 60,
            repeated: 60,
            stalled: 40,
            cut: 30,
            outage: 50,
            old_list: 200,
        }
    }
}

/// How a handle misunderstands the store, to see that a test notices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Misunderstanding {
    #[default]
    None,
    /// A create that finds an object is taken for done.
    ExistingIsMade,
    /// Objects whose keys end so are not seen.
    Blind(&'static str),
    /// The part of the keys behind the first is put into a folder of its own.
    OwnFolder(&'static str, String),
}

/// When a handle dies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    /// At which of its requests, from 0.
    pub(crate) request: u64,
    /// Whether that request still takes effect.
    pub(crate) is_after: bool,
}

/// The longest time that a write may take to arrive, and a client may stall.
pub(crate) const LATEST: Duration = Duration::from_secs(200);
/// When a client gives a request up.
const PATIENCE: Duration = Duration::from_secs(5);

/// What becomes of a write.
enum Fate {
    Answered,
    AnswerLost,
    Late,
    Lost,
    Conflict,
}

#[derive(Debug)]
struct Life {
    requests: AtomicU64,
    outage_end: Mutex<Option<Instant>>,
    death: Option<Death>,
    killed: Notify,
}

/// A node's way to the store.
#[derive(Debug, Clone)]
pub(crate) struct FaultyStore {
    world: Arc<World>,
    faults: Faults,
    misunderstanding: Misunderstanding,
    life: Arc<Life>,
}

impl FaultyStore {
    pub(crate) fn new(world: &Arc<World>, faults: Faults) -> Self {
        Self {
            world: Arc::clone(world),
            faults,
            misunderstanding: Misunderstanding::None,
            life: Life::new(None),
        }
    }

    pub(crate) fn dying(mut self, death: Option<Death>) -> Self {
        self.life = Life::new(death);
        self
    }

    pub(crate) fn misunderstanding(mut self, misunderstanding: Misunderstanding) -> Self {
        self.misunderstanding = misunderstanding;
        self
    }

    /// The same way to the store, without a misunderstanding.
    pub(crate) fn understanding(&self) -> Self {
        self.clone().misunderstanding(Misunderstanding::None)
    }

    /// Ends when the handle has died.
    pub(crate) async fn killed(&self) {
        self.life.killed.notified().await;
    }

    /// How many requests were made.
    pub(crate) fn requests(&self) -> u64 {
        self.life.requests.load(Ordering::Relaxed)
    }

    /// Before a request takes effect. Returns its number.
    async fn begin(&self) -> Result<u64> {
        let number = self.life.requests.fetch_add(1, Ordering::Relaxed);
        self.life.die_at(number, false).await;
        if self.world.hits(self.faults.stalled) {
            tokio::time::sleep(self.world.time(1_000..60_000)).await;
        }
        tokio::time::sleep(self.world.time(1..100)).await;
        let outage_end = *self.life.outage_end.lock();
        if outage_end.is_some_and(|end| Instant::now() < end) {
            return Err(failed("no connection"));
        }
        if self.world.hits(self.faults.refused) {
            return Err(failed("503 Slow Down"));
        }
        Ok(number)
    }

    fn fate(&self, is_create: bool) -> Fate {
        let faults = &self.faults;
        if self.world.hits(faults.outage) {
            let end = Instant::now() + self.world.time(1_000..30_000);
            *self.life.outage_end.lock() = Some(end);
            let arrives = self.world.hits(500);
            if arrives { Fate::Late } else { Fate::Lost }
        } else if is_create && self.world.hits(faults.conflict) {
            Fate::Conflict
        } else if self.world.hits(faults.late) {
            Fate::Late
        } else if self.world.hits(faults.answer_lost) {
            Fate::AnswerLost
        } else {
            Fate::Answered
        }
    }

    fn write_later(&self, path: &Path, body: &PutPayload, how: &PutOptions) {
        let (world, path) = (Arc::clone(&self.world), path.clone());
        let (body, how) = (body.clone(), how.clone());
        let delay = world.time(5_000..120_000);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // Nobody waits for the answer.
            let _ = world.write(&path, body, how).await;
        });
    }

    async fn put(&self, path: Path, body: PutPayload, how: PutOptions) -> Result<PutResult> {
        let path = self.place(&path);
        let number = self.begin().await?;
        let is_create = how.mode == PutMode::Create;
        let fate = self.fate(is_create);
        match fate {
            Fate::Conflict => return Err(exists(&path)),
            Fate::Late | Fate::Lost => {
                if matches!(fate, Fate::Late) {
                    self.write_later(&path, &body, &how);
                }
                tokio::time::sleep(PATIENCE).await;
                return Err(failed("no answer"));
            }
            Fate::AnswerLost | Fate::Answered => {}
        }
        if self.world.hits(self.faults.repeated) {
            self.write_later(&path, &body, &how);
        }
        let put = self.world.write(&path, body, how).await;
        self.life.die_at(number, true).await;
        if matches!(fate, Fate::AnswerLost) {
            tokio::time::sleep(PATIENCE).await;
            return Err(failed("no answer"));
        }
        match put {
            Err(Error::AlreadyExists { .. }) if self.is_mistaken() => Ok(PutResult {
                e_tag: None,
                version: None,
                extensions: Default::default(),
            }),
            put => put,
        }
    }

    fn is_mistaken(&self) -> bool {
        self.misunderstanding == Misunderstanding::ExistingIsMade
    }

    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        let place = self.place(&path);
        let number = self.begin().await?;
        if let Misunderstanding::Blind(end) = &self.misunderstanding
            && path.as_ref().ends_with(end)
        {
            return self.world.inner.get(&Path::from("nothing")).await;
        }
        let found = self.world.inner.get_opts(&place, options).await;
        self.life.die_at(number, true).await;
        let mut found = found?;
        found.meta = self.world.dated(found.meta);
        let length = found.range.end - found.range.start;
        if length < 2 || !self.world.hits(self.faults.cut) {
            return Ok(found);
        }
        let half = usize::try_from(length / 2).unwrap();
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let attributes = found.attributes.clone();
        let cut = found.into_stream().map_ok(move |bytes| bytes.slice(..half));
        Ok(GetResult {
            payload: GetResultPayload::Stream(cut.boxed()),
            meta,
            range,
            attributes,
            extensions: Default::default(),
        })
    }

    async fn remove(&self, path: Path) -> Result<Path> {
        let place = self.place(&path);
        let number = self.begin().await?;
        self.world.inner.delete(&place).await?;
        self.life.die_at(number, true).await;
        if self.world.hits(self.faults.answer_lost) {
            tokio::time::sleep(PATIENCE).await;
            return Err(failed("no answer"));
        }
        Ok(path)
    }

    async fn listed(&self, folder: Option<Path>) -> Result<Vec<Result<ObjectMeta>>> {
        let folder = folder.map(|folder| self.place(&folder));
        let number = self.begin().await?;
        let is_old = self.world.hits(self.faults.old_list);
        let all: Vec<_> = self.world.inner.list(folder.as_ref()).try_collect().await?;
        self.life.die_at(number, true).await;
        let seen = all
            .into_iter()
            .filter(|meta| !(is_old && self.world.is_fresh(meta)));
        Ok(seen.map(|meta| Ok(self.world.dated(meta))).collect())
    }

    /// Where a handle with folders of its own has an object.
    fn place(&self, path: &Path) -> Path {
        match &self.misunderstanding {
            Misunderstanding::OwnFolder(part, folder) => {
                Path::from(path.as_ref().replace(part, folder))
            }
            _ => path.clone(),
        }
    }
}

impl Life {
    fn new(death: Option<Death>) -> Arc<Self> {
        Arc::new(Self {
            requests: AtomicU64::new(0),
            outage_end: Mutex::new(None),
            death,
            killed: Notify::new(),
        })
    }

    async fn die_at(&self, number: u64, is_after: bool) {
        let is_now = |death: &Death| death.is_after == is_after && death.request <= number;
        if self.death.as_ref().is_some_and(is_now) {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

fn failed(reason: &'static str) -> Error {
    Error::Generic {
        store: "faulty",
        source: reason.into(),
    }
}

fn exists(path: &Path) -> Error {
    Error::AlreadyExists {
        path: path.to_string(),
        source: "409 Conflict".into(),
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

/// Written as the macro of the trait would expand it, which is not a dependency here.
impl ObjectStore for FaultyStore {
    fn put_opts<'a, 'b, 'f>(
        &'a self,
        location: &'b Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> BoxFuture<'f, Result<PutResult>>
    where
        'a: 'f,
        'b: 'f,
    {
        self.put(location.clone(), payload, opts).boxed()
    }

    fn put_multipart_opts<'a, 'b, 'f>(
        &'a self,
        location: &'b Path,
        opts: PutMultipartOptions,
    ) -> BoxFuture<'f, Result<Box<dyn MultipartUpload>>>
    where
        'a: 'f,
        'b: 'f,
    {
        self.world.inner.put_multipart_opts(location, opts)
    }

    fn get_opts<'a, 'b, 'f>(
        &'a self,
        location: &'b Path,
        options: GetOptions,
    ) -> BoxFuture<'f, Result<GetResult>>
    where
        'a: 'f,
        'b: 'f,
    {
        self.get(location.clone(), options).boxed()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let removed = locations.and_then(move |path| {
            let this = this.clone();
            async move { this.remove(path).await }
        });
        removed.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move { this.listed(prefix).await.map(stream::iter) };
        listed.into_stream().try_flatten().boxed()
    }

    fn list_with_delimiter<'a, 'b, 'f>(
        &'a self,
        prefix: Option<&'b Path>,
    ) -> BoxFuture<'f, Result<ListResult>>
    where
        'a: 'f,
        'b: 'f,
    {
        self.world.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'c, 'f>(
        &'a self,
        from: &'b Path,
        to: &'c Path,
        options: CopyOptions,
    ) -> BoxFuture<'f, Result<()>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
    {
        self.world.inner.copy_opts(from, to, options)
    }
}
