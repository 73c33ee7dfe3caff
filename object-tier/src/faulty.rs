//! A store in memory for tests: it counts operations, and delays, refuses or stops some of them.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
    memory::InMemory, path::Path,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Bucket;

/// What happens to an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Nothing,
    /// It takes effect after this time.
    Delay(Duration),
    /// It never ends, and has no effect.
    StopBefore,
    /// It takes effect and never ends.
    StopAfter,
    /// The answer is an error with this text; it has no effect.
    Fail(&'static str),
    /// The same, but it took effect.
    FailAfter(&'static str),
}

/// Chooses the fault of an operation by its number, from 1, its name and its key.
type Plan = Box<dyn FnMut(u64, &'static str, &str) -> Fault + Send>;

#[derive(Clone)]
pub(crate) struct Faulty {
    inner: Arc<InMemory>,
    plan: Arc<Mutex<Plan>>,
    count: Arc<AtomicU64>,
    stopped: Arc<Notify>,
}

impl Faulty {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::default(),
            plan: Arc::new(Mutex::new(Box::new(|_, _, _| Fault::Nothing))),
            count: Arc::default(),
            stopped: Arc::default(),
        }
    }

    pub(crate) fn bucket(&self, requests_max: usize) -> Bucket {
        Bucket::new(Arc::new(self.clone()), "some/prefix", requests_max)
    }

    /// Operations from now on are counted from 1 and have these faults.
    pub(crate) fn plan(&self, plan: impl FnMut(u64, &'static str, &str) -> Fault + Send + 'static) {
        *self.plan.lock() = Box::new(plan);
        self.count.store(0, Ordering::SeqCst);
    }

    /// Waits until an operation was stopped.
    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }

    async fn run<T>(
        &self,
        name: &'static str,
        path: &Path,
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (self.plan.lock())(number, name, path.as_ref());
        let failure = |text: &str| Error::Generic {
            store: "faulty",
            source: text.into(),
        };
        match fault {
            Fault::Nothing => {}
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Fail(text) => return Err(failure(text)),
            Fault::FailAfter(text) => {
                operation.await?;
                return Err(failure(text));
            }
            Fault::StopBefore | Fault::StopAfter => {
                if fault == Fault::StopAfter {
                    let _ = operation.await;
                }
                self.stopped.notify_one();
                return std::future::pending().await;
            }
        }
        operation.await
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl ObjectStore for Faulty {
    fn put_opts<'a, 'b, 't>(
        &'a self,
        location: &'b Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> BoxFuture<'t, Result<PutResult>>
    where
        'a: 't,
        'b: 't,
        Self: 't,
    {
        let put = self.inner.put_opts(location, payload, options);
        Box::pin(self.run("put", location, put))
    }

    fn put_multipart_opts<'a, 'b, 't>(
        &'a self,
        location: &'b Path,
        options: PutMultipartOptions,
    ) -> BoxFuture<'t, Result<Box<dyn MultipartUpload>>>
    where
        'a: 't,
        'b: 't,
        Self: 't,
    {
        Box::pin(async move {
            let begin = self.inner.put_multipart_opts(location, options);
            let parts = self.run("begin", location, begin).await?;
            let store = self.clone();
            let location = location.clone();
            let parts: Box<dyn MultipartUpload> = Box::new(Parts {
                store,
                location,
                parts,
            });
            Ok(parts)
        })
    }

    fn get_opts<'a, 'b, 't>(
        &'a self,
        location: &'b Path,
        options: GetOptions,
    ) -> BoxFuture<'t, Result<GetResult>>
    where
        'a: 't,
        'b: 't,
        Self: 't,
    {
        let get = self.inner.get_opts(location, options);
        Box::pin(self.run("get", location, get))
    }

    fn get_ranges<'a, 'b, 'c, 't>(
        &'a self,
        location: &'b Path,
        ranges: &'c [Range<u64>],
    ) -> BoxFuture<'t, Result<Vec<Bytes>>>
    where
        'a: 't,
        'b: 't,
        'c: 't,
        Self: 't,
    {
        self.inner.get_ranges(location, ranges)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let deletes = locations.then(move |location| {
            let this = this.clone();
            async move {
                let location = location?;
                let one = futures_util::stream::iter([Ok(location.clone())]).boxed();
                let mut deleted = this.inner.delete_stream(one);
                let delete = async { deleted.next().await.unwrap() };
                this.run("delete", &location, delete).await
            }
        });
        deletes.boxed()
    }

    /// A list that fails is late: it shows nothing.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let key = prefix.map_or("", |prefix| prefix.as_ref());
        match (self.plan.lock())(number, "list", key) {
            Fault::Fail(_) => futures_util::stream::empty().boxed(),
            Fault::StopBefore | Fault::StopAfter => {
                self.stopped.notify_one();
                futures_util::stream::pending().boxed()
            }
            _ => self.inner.list(prefix),
        }
    }

    /// Begins with the first key, as stores do that do not know where to begin.
    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        _: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list(prefix)
    }

    fn list_with_delimiter<'a, 'b, 't>(
        &'a self,
        prefix: Option<&'b Path>,
    ) -> BoxFuture<'t, Result<ListResult>>
    where
        'a: 't,
        'b: 't,
        Self: 't,
    {
        self.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'c, 't>(
        &'a self,
        from: &'b Path,
        to: &'c Path,
        options: CopyOptions,
    ) -> BoxFuture<'t, Result<()>>
    where
        'a: 't,
        'b: 't,
        'c: 't,
        Self: 't,
    {
        self.inner.copy_opts(from, to, options)
    }
}

#[derive(Debug)]
struct Parts {
    store: Faulty,
    location: Path,
    parts: Box<dyn MultipartUpload>,
}

impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let put = self.parts.put_part(data);
        let (store, location) = (self.store.clone(), self.location.clone());
        Box::pin(async move { store.run("part", &location, put).await })
    }

    fn complete<'a, 't>(&'a mut self) -> BoxFuture<'t, Result<PutResult>>
    where
        'a: 't,
        Self: 't,
    {
        let complete = self.parts.complete();
        Box::pin(self.store.run("complete", &self.location, complete))
    }

    fn abort<'a, 't>(&'a mut self) -> BoxFuture<'t, Result<()>>
    where
        'a: 't,
        Self: 't,
    {
        let abort = self.parts.abort();
        Box::pin(self.store.run("abort", &self.location, abort))
    }
}
