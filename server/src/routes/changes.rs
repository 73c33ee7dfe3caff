//! What changes on the server, as server-sent events (`text/event-stream`).

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use recording::BufferStatus;
use serde::{Deserialize, Serialize};
use storage_core::{ListOrder, StorageFilter, StorageInfo, StorageStatus};
use storage_format::storage_file::StorageState;
use storage_format::{AgentId, StorageId};
use utoipa::IntoParams;

use super::agents::AgentDocument;
use super::page::query;
use super::recordings::RecordingDocument;
use super::refusals::{BadRequest, NotFound, TooManyRequests};
use super::storages::StorageDocument;
use super::tier::NodesDocument;
use crate::access::Caller;
use crate::app_state::AppState;
use crate::change_feed::{Change, NoPlace, Place, Thing, Who};
use crate::connection::{Answering, InUse, Peer};
use crate::problem::Problem;

/// How often a follower asks whether something changed.
const TICK: Duration = Duration::from_millis(250);
/// Time without a message after which one without content is sent: proxies and clients know that
/// the connection lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Things that are looked at for one piece of the body, and the length from which it is sent.
const THINGS_MAX: usize = 256;
const PIECE_BYTES: usize = 64 * 1024;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// nginx would keep pieces until it has enough of them.
const UNBUFFERED: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-accel-buffering"),
    HeaderValue::from_static("no"),
);

/// What to follow.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesQuery {
    /// Only this storage and jobs that work on it.
    #[param(value_type = Option<String>)]
    storage: Option<StorageId>,
}

/// Sends what changes until the client hangs up, its token ends, or the server stops. Messages are
/// `storage` (`{storage, status}`), `agent`, `nodes`, `recording`, `job`, `buffer` (each a
/// document), `gone` (`{kind, id}`), `reset` (what is known may be old: load it again) and `end`
/// (`{code}`). A request with the `Last-Event-ID` of an earlier one gets what changed since.
#[utoipa::path(
    get, operation_id = "follow_changes", path = "/changes", tag = "storages",
    params(
        ChangesQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The last id that was received"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream",
         description = "Changes as they happen; a slow client gets the last state of each thing"),
        BadRequest, NotFound, TooManyRequests,
    ),
)]
pub(super) async fn follow(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    connection: Option<Extension<InUse>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let ChangesQuery { storage } = query(&uri)?;
    if let Some(id) = storage {
        if !caller.sees_storage(id) {
            return Err(storage_core::StorageError::StorageNotFound(id).into());
        }
        app.engine.storages().get(id)?;
    }
    let place = app.changes.enter(who(&caller, peer.map(|peer| peer.0)));
    let place = place.map_err(|full| too_many(&full))?;
    let last = headers.get(LAST_EVENT_ID);
    let last = last.and_then(|id| app.changes.number_of(id.to_str().ok()?));
    let follower = Follower {
        app,
        caller,
        storage,
        known: last,
        has_begun: false,
        sent: Instant::now(),
        _place: place,
        _connection: connection.map(|Extension(connection)| connection.hold()),
    };
    let body = Body::from_stream(unfold(Some(follower), Follower::next));
    let mut response = body.into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, EVENT_STREAM);
    fields.insert(header::CACHE_CONTROL, NO_STORE);
    fields.extend([UNBUFFERED]);
    Ok(response)
}

fn who(caller: &Caller, peer: Option<Peer>) -> Who {
    match caller {
        Caller::Anyone => Who::Peer(peer.map(|Peer(address)| address)),
        Caller::Token(token) => Who::Token(token.id.clone()),
        Caller::User(user) => Who::User(user.name.clone()),
    }
}

fn too_many(full: &NoPlace) -> Problem {
    let what = match full {
        NoPlace::All(max) => format!("{max} clients follow changes already"),
        NoPlace::OfOne(max) => {
            format!("{max} clients follow changes with this token, user or address already")
        }
    };
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "the server is busy")
        .detail(what)
        .cause("each of them holds a connection")
        .remedy("retry later, or ask for what is needed from time to time")
        .retry_after(10)
}

/// A storage as followers see it.
#[derive(Serialize)]
struct FollowedStorage {
    storage: StorageDocument,
    /// How writing keeps up, while something can be written.
    status: Option<StorageStatus>,
}

impl FollowedStorage {
    fn of(app: &AppState, info: StorageInfo) -> Self {
        let id = info.id;
        let is_written = matches!(
            info.state,
            StorageState::Open | StorageState::Recording | StorageState::Finalizing
        );
        // One that is being recovered has none yet.
        let status = is_written.then(|| app.engine.storages().status(id).ok());
        Self {
            storage: StorageDocument::of(app, info),
            status: status.flatten(),
        }
    }
}

/// The buffer as `GET /buffer` shows it.
#[derive(Serialize)]
struct FollowedBuffer {
    packets: u64,
    bytes: u64,
    bytes_max: u64,
    evicted: u64,
}

impl From<BufferStatus> for FollowedBuffer {
    fn from(status: BufferStatus) -> Self {
        Self {
            packets: status.packets,
            bytes: status.bytes,
            bytes_max: status.bytes_max,
            evicted: status.evicted,
        }
    }
}

/// Everything that can be followed, with digests of what it is.
fn look(app: &AppState) -> Vec<(Thing, u64)> {
    let mut seen = Vec::new();
    let mut text = Vec::new();
    let buffer = FollowedBuffer::from(app.recorder.buffer_status());
    seen.push((Thing::Buffer, digest(app, &buffer, &mut text)));
    let (all, order) = (StorageFilter::default(), ListOrder::default());
    for info in app.engine.storages().each(&all, order, |_| true) {
        let id = info.id;
        let document = FollowedStorage::of(app, info);
        seen.push((Thing::Storage(id), digest(app, &document, &mut text)));
    }
    for info in app.recorder.recordings() {
        let id = info.id;
        let document = RecordingDocument::from(info);
        seen.push((Thing::Recording(id), digest(app, &document, &mut text)));
    }
    if app.tier.is_some() {
        let nodes = NodesDocument::of(app, None);
        seen.push((Thing::Nodes, digest(app, &nodes, &mut text)));
    }
    for agent in app.engine.agents().all().iter() {
        let document = AgentDocument::of(app, agent, &Caller::Anyone);
        let thing = Thing::Agent(agent.spec.id.clone());
        seen.push((thing, digest(app, &document, &mut text)));
    }
    for document in app.jobs.all() {
        if let Ok(id) = document.id.parse() {
            seen.push((Thing::Job(id), digest(app, &document, &mut text)));
        }
    }
    seen
}

/// The digest of a document; `text` is reused.
fn digest(app: &AppState, document: &impl Serialize, text: &mut Vec<u8>) -> u64 {
    text.clear();
    serde_json::to_writer(&mut *text, document).expect("documents can be written as JSON");
    app.changes.digest(text)
}

/// One client that follows changes. It keeps no messages: it reads things when it sends them.
struct Follower {
    app: Arc<AppState>,
    caller: Caller,
    storage: Option<StorageId>,
    /// The last change that the client was told of; `None`: what it knows may be old.
    known: Option<u64>,
    has_begun: bool,
    sent: Instant,
    _place: Place,
    /// On HTTP/1.
    _connection: Option<Answering>,
}

impl Follower {
    /// The next piece of the body, when there is one. The connection asks for it once the client
    /// has taken what is before it.
    async fn next(this: Option<Self>) -> Option<(Result<Bytes, Infallible>, Option<Self>)> {
        let mut this = this?;
        loop {
            let why = if this.app.is_draining() {
                Some("stopping")
            } else {
                let admitted = this.app.access.still_admits(&this.caller);
                admitted.err().map(|ended| Problem::from(ended).code())
            };
            if let Some(code) = why {
                let last = format!("event: end\ndata: {{\"code\":\"{code}\"}}\n\n");
                return Some((Ok(last.into()), None));
            }
            if this.app.changes.is_look_due() {
                let app = Arc::clone(&this.app);
                // With many storages it takes long. A panic is in the log; another look follows.
                let looked = move || app.changes.look(|| look(&app));
                drop(tokio::task::spawn_blocking(looked).await);
            }
            let piece = this.piece();
            if !piece.is_empty() {
                this.sent = Instant::now();
                return Some((Ok(piece.into()), Some(this)));
            }
            // Either way something is looked at again.
            drop(tokio::time::timeout(TICK, this.app.draining()).await);
        }
    }

    /// What is to be sent now; empty if nothing is.
    fn piece(&mut self) -> String {
        let mut piece = String::new();
        if !self.has_begun {
            self.has_begun = true;
            piece += "retry: 2000\n\n";
        }
        let changes = self
            .known
            .map(|known| self.app.changes.since(known, THINGS_MAX));
        let Some(changes) = changes.flatten() else {
            // Taken before the client loads what it shows, so that it misses nothing.
            let last = self.app.changes.last();
            self.known = Some(last);
            self.message(&mut piece, "reset", last, "{}");
            return piece;
        };
        for Change {
            number,
            thing,
            is_gone,
        } in changes
        {
            let told = if is_gone {
                self.gone(&thing)
            } else {
                self.now(&thing)
            };
            if let Some((event, data)) = told {
                self.message(&mut piece, event, number, &data);
            }
            self.known = Some(number);
            if piece.len() >= PIECE_BYTES {
                break;
            }
        }
        if piece.is_empty() && self.sent.elapsed() >= HEARTBEAT {
            let id = self.app.changes.id_of(self.known.unwrap_or_default());
            write!(piece, ": nothing new\nid: {id}\n\n").expect("texts can be written to");
        }
        piece
    }

    fn message(&self, piece: &mut String, event: &str, number: u64, data: &str) {
        let id = self.app.changes.id_of(number);
        write!(piece, "event: {event}\nid: {id}\ndata: {data}\n\n")
            .expect("texts can be written to");
    }

    /// Name and document of a thing as it is now, if the client may know of it and wants to.
    fn now(&self, thing: &Thing) -> Option<(&'static str, String)> {
        let (app, caller) = (&self.app, &self.caller);
        let sees_all = self.storage.is_none() && !caller.is_scoped();
        match *thing {
            Thing::Buffer if sees_all => {
                let buffer = FollowedBuffer::from(app.recorder.buffer_status());
                Some(("buffer", json(&buffer)))
            }
            Thing::Nodes if sees_all => Some(("nodes", json(&NodesDocument::of(app, None)))),
            Thing::Storage(id) if self.wants(id) => {
                let info = app.engine.storages().get(id).ok()?;
                Some(("storage", json(&FollowedStorage::of(app, info))))
            }
            Thing::Recording(id) if sees_all => {
                let info = app.recorder.recording(id).ok()?;
                Some(("recording", json(&RecordingDocument::from(info))))
            }
            Thing::Job(id) => {
                app.jobs.check_seen(id, caller).ok()?;
                let job = app.jobs.get(id).ok()?;
                let wants = self.storage.is_none_or(|storage| job.is_of(storage));
                wants.then(|| ("job", json(&job)))
            }
            Thing::Agent(ref id) if self.wants_agent(id) => {
                let agent = app.engine.agents().get(id).ok()?;
                Some(("agent", json(&AgentDocument::of(app, &agent, caller))))
            }
            Thing::Buffer
            | Thing::Nodes
            | Thing::Storage(_)
            | Thing::Recording(_)
            | Thing::Agent(_) => None,
        }
    }

    /// That a thing is gone, if the client may have known of it.
    fn gone(&self, thing: &Thing) -> Option<(&'static str, String)> {
        let sees_all = self.storage.is_none() && !self.caller.is_scoped();
        let (kind, id) = match *thing {
            Thing::Agent(ref id) if self.wants_agent(id) => ("agent", id.to_string()),
            Thing::Storage(id) if self.wants(id) => ("storage", id.to_string()),
            Thing::Recording(id) if sees_all => ("recording", id.to_string()),
            Thing::Job(id) if sees_all => ("job", id.to_string()),
            _ => return None,
        };
        Some(("gone", format!("{{\"kind\":\"{kind}\",\"id\":\"{id}\"}}")))
    }

    fn wants_agent(&self, id: &AgentId) -> bool {
        self.storage.is_none() && self.caller.sees_agent(id)
    }

    fn wants(&self, id: StorageId) -> bool {
        self.caller.sees_storage(id) && self.storage.is_none_or(|wanted| wanted == id)
    }
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("documents can be written as JSON")
}
