//! Who may do what: tokens with roles and scopes, and the rule of every route.
//!
//! Without a token the server serves everybody, and listens on loopback only. From the first token
//! on, a request is refused unless the rule of its route admits its token
//! (`docs/decisions/0068-tokens.md`).

mod admitted_body;
mod admitted_end;
mod caching;
mod caller;
mod offline;
mod proxy;
mod rules;
pub(crate) mod share;
mod token;
mod tokens;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use storage_core::{Documents, StorageError};
use storage_format::{AgentId, StorageId};

use crate::config::AccessConfig;
use crate::problem::Problem;
use admitted_body::AdmittedBody;
pub(crate) use admitted_end::Ended;
pub(crate) use caller::Caller;
pub use offline::{OfflineError, create_operator_token};
pub(crate) use proxy::Proxy;
use rules::{Beyond, Rule};
pub(crate) use rules::{Right, rule_for, rule_of};
use share::Share;
pub(crate) use token::{NewToken, Role, Token};
use token::{Secret, Why};
use tokens::Tokens;
pub use tokens::TokensError;

/// The routes that have a rule, by method and path.
#[cfg(test)]
pub(crate) fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    rules::RULES.iter().map(|rule| (rule.method, rule.path))
}

/// The text in `WWW-Authenticate` (RFC 6750).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"tracehold\"");
const CHALLENGE_INVALID: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"tracehold\", error=\"invalid_token\"");

/// Admission of requests.
pub(crate) struct Access {
    tokens: Arc<Tokens>,
    is_metrics_open: bool,
    has_proxy: bool,
}

impl Access {
    /// Reads the tokens of a data folder.
    pub(crate) async fn load(
        documents: &Documents,
        config: &AccessConfig,
    ) -> Result<Self, TokensError> {
        Ok(Self {
            tokens: Arc::new(Tokens::load(documents).await?),
            is_metrics_open: config.metrics_open,
            has_proxy: config.has_proxy(),
        })
    }

    /// Whether the caller of an open route may see everything that can be read.
    pub(crate) fn reads_all(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Anyone => !self.is_closed(),
            Caller::Token(token) => token.role.has(Right::Read) && !token.is_scoped(),
            Caller::User(user) => user.has(Right::Read),
        }
    }

    /// Whether requests need a token, or a user of the proxy.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_proxy || self.tokens.is_closed()
    }

    /// Whether a caller that was admitted still is.
    pub(crate) fn still_admits(&self, caller: &Caller) -> Result<(), Ended> {
        self.tokens.still_admits(caller)
    }

    /// All tokens, the oldest first.
    pub(crate) fn tokens(&self) -> Vec<Arc<Token>> {
        self.tokens.all()
    }

    /// Creates a token for `caller`, and returns it with the text for its owner.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        new: NewToken,
    ) -> Result<(Arc<Token>, String), TokensError> {
        self.tokens.create(caller, new, self.has_proxy).await
    }

    /// Revokes a token.
    pub(crate) async fn revoke(&self, id: &str) -> Result<(), TokensError> {
        self.tokens.revoke(id).await
    }

    /// Who sent a request with this head.
    fn caller(&self, head: &http::request::Parts) -> Result<Caller, Refusal> {
        if let Some(share) = head.extensions.get::<Share>() {
            let secret = share.secret().ok_or(Refusal::Share(Why::Unknown))?;
            let token = self.tokens.find(secret).map_err(Refusal::Share)?;
            // Others do not belong in a URL.
            return match token.role {
                Role::Share => Ok(Caller::Token(token)),
                _ => Err(Refusal::Share(Why::Unknown)),
            };
        }
        // Who presents a token has asked for its rights. Other schemes are between the client and
        // the proxy, which passes them on.
        match head.extensions.get::<proxy::Named>() {
            Some(named) if !presents_token(&head.headers) => match named {
                proxy::Named::User(user) => Ok(Caller::User(Arc::clone(user))),
                proxy::Named::Nobody => Err(Refusal::User),
            },
            _ => self.bearer(&head.headers),
        }
    }

    /// Who sent a request with these header fields.
    fn bearer(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Err(Refusal::NoToken);
        };
        let text = field.to_str().ok().and_then(|text| text.split_once(' '));
        let secret = text
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| Secret::parse(token.trim()));
        let secret = secret.ok_or(Refusal::Token(Why::Unknown))?;
        let token = self.tokens.find(&secret).map_err(Refusal::Token)?;
        match token.role {
            Role::Share => Err(Refusal::Token(Why::Unknown)),
            _ => Ok(Caller::Token(token)),
        }
    }

    /// Whether `caller` may use a route, with these values in its path.
    fn check(&self, caller: &Caller, rule: &Rule, named: &Named) -> Result<(), Refusal> {
        let token = match caller {
            Caller::Anyone => return Ok(()),
            Caller::User(user) if user.has(rule.right) => return Ok(()),
            Caller::User(user) => return Err(Refusal::Roles(user.roles.clone())),
            Caller::Token(token) => token,
        };
        if !token.role.has(rule.right) {
            return Err(Refusal::Role(token.role));
        }
        // The answer about a storage that exists must be that about one that does not.
        if let Some(storage) = named.storage
            && !caller.sees_storage(storage)
        {
            return Err(Refusal::Storage(storage));
        }
        if let Some(agent) = &named.agent
            && !token.agents.is_empty()
            && !token.agents.contains(agent)
        {
            return Err(Refusal::Agent);
        }
        let is_wide = match rule.beyond {
            Beyond::Nothing | Beyond::Seen => false,
            Beyond::Agents => token.is_scoped() && token.agents.is_empty(),
            Beyond::Storages => !token.storages.is_empty(),
            Beyond::Everything => token.is_scoped(),
        };
        if is_wide {
            return Err(Refusal::Wide);
        }
        Ok(())
    }

    fn is_open(&self, rule: &Rule) -> bool {
        match rule.right {
            Right::Nothing => true,
            Right::Metrics => self.is_metrics_open,
            Right::Find | Right::Push | Right::Read | Right::Verify | Right::Operate => false,
        }
    }
}

/// Whether a request has a token, good or not.
fn presents_token(headers: &HeaderMap) -> bool {
    headers.get_all(header::AUTHORIZATION).iter().any(|field| {
        let text = field.to_str().unwrap_or_default();
        let scheme = text.split(' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case("bearer")
    })
}

/// What a path names.
#[derive(Debug, Default)]
struct Named {
    storage: Option<StorageId>,
    agent: Option<AgentId>,
}

impl Named {
    /// Values that are no ids are refused by their handlers.
    fn of(path: &str, values: &RawPathParams) -> Self {
        let is_of_storage =
            path.starts_with("/api/v1/storages/{id}") || path.starts_with("/storage/{id}/");
        let value = |wanted: &str| {
            let mut values = values.iter();
            values.find_map(|(name, value)| (name == wanted).then_some(value))
        };
        Self {
            storage: value("id")
                .filter(|_| is_of_storage)
                .and_then(|id| id.parse().ok()),
            agent: value("agent").and_then(|id| id.parse().ok()),
        }
    }
}

/// Why a request is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    NoToken,
    Token(Why),
    Share(Why),
    /// The proxy named somebody who may do nothing.
    User,
    Role(Role),
    /// The same of a user.
    Roles(Vec<Role>),
    Storage(StorageId),
    Agent,
    Wide,
    /// The route has only these methods.
    Method(String),
}

/// Admits a request to its route, and tells the handler who sent it.
pub(crate) async fn admit(
    access: &Access,
    request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let (mut head, body) = request.into_parts();
    let change = access.tokens.change_count();
    let admitted = admitted(access, &mut head).await;
    match admitted {
        Ok(caller) => {
            let reader = caching::is_read(&head.method).then(|| caller.clone());
            // What is refused later has ended meanwhile.
            let challenge = match caller {
                Caller::Anyone => CHALLENGE,
                Caller::Token(_) | Caller::User(_) => CHALLENGE_INVALID,
            };
            // Most requests have no body and need no box for it.
            let body = if http_body::Body::is_end_stream(&body) {
                body
            } else {
                let (caller, tokens) = (caller.clone(), Arc::clone(&access.tokens));
                Body::new(AdmittedBody::new(body, caller, tokens, change))
            };
            head.extensions.insert(caller);
            let mut response = answer(Request::from_parts(head, body)).await;
            if response.status() == StatusCode::UNAUTHORIZED {
                let fields = response.headers_mut();
                fields.insert(header::WWW_AUTHENTICATE, challenge);
            }
            if let Some(reader) = reader {
                caching::limit(response.headers_mut(), &reader);
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn admitted(access: &Access, head: &mut http::request::Parts) -> Result<Caller, Refusal> {
    if !access.is_closed() {
        return Ok(Caller::Anyone);
    }
    let path = head.extensions.get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let Some(rule) = rule_for(&head.method, path, head.uri.query()) else {
        return Err(Refusal::Method(rules::methods(path)));
    };
    if access.is_open(rule) {
        // A token is not needed, but whoever has one may be told more.
        return Ok(access.caller(head).unwrap_or(Caller::Anyone));
    }
    let caller = access.caller(head)?;
    let values = RawPathParams::from_request_parts(head, &()).await;
    let named = match (&values, &caller) {
        (Ok(values), _) => Named::of(path, values),
        // Without its values a path names nothing, and a scope would be passed by.
        (Err(_), Caller::Token(token)) if token.is_scoped() => return Err(Refusal::Wide),
        // The handler refuses it.
        (Err(_), _) => Named::default(),
    };
    access.check(&caller, rule, &named)?;
    Ok(caller)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let field = match &self {
            Self::NoToken => Some((header::WWW_AUTHENTICATE, CHALLENGE)),
            Self::Token(_) => Some((header::WWW_AUTHENTICATE, CHALLENGE_INVALID)),
            Self::Method(methods) => {
                let methods = HeaderValue::from_str(methods).ok();
                methods.map(|methods| (header::ALLOW, methods))
            }
            Self::Share(_)
            | Self::User
            | Self::Role(_)
            | Self::Roles(_)
            | Self::Storage(_)
            | Self::Agent
            | Self::Wide => None,
        };
        let mut response = Problem::from(self).into_response();
        response.headers_mut().extend(field);
        response
    }
}

fn share_invalid(why: Why) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "share_invalid",
        "the shared URL is not accepted",
    )
    .cause(match why {
        Why::Unknown => "this server has no such share; those that ended are forgotten",
        Why::Revoked => "the share was revoked",
        Why::Expired => "the share has expired",
    })
    .remedy("ask who sent the URL for a new one")
}

/// What a role cannot do.
fn limit_of(role: Role) -> &'static str {
    match role {
        Role::Agent => "an agent pushes packets, and reads nothing but the list of storages",
        Role::Reader => "a reader changes nothing",
        Role::Share => "a shared URL only reads, and one storage",
        Role::Operator => "an operator may do everything",
    }
}

fn user_unknown() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "user_unknown",
        "the user has no role",
    )
    .cause(
        "the proxy named no single user of access.proxy_user_roles or \
                 access.proxy_group_roles",
    )
    .remedy("ask an operator to list the user or one of their groups, or use a token")
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoToken => Self::new(
                StatusCode::UNAUTHORIZED,
                "token_required",
                "the request needs a token",
            )
            .cause("it has no Authorization field, or several, and this server has tokens")
            .remedy("send Authorization: Bearer TOKEN; an operator creates tokens"),
            Refusal::Token(why) => Self::new(
                StatusCode::UNAUTHORIZED,
                "token_invalid",
                "the token is not accepted",
            )
            .cause(match why {
                Why::Unknown => "it is not a token of this server",
                Why::Revoked => "it was revoked",
                Why::Expired => "it has expired",
            })
            .remedy("ask an operator for a new token"),
            Refusal::Share(why) => share_invalid(why),
            Refusal::User => user_unknown(),
            Refusal::Role(role) => Self::new(
                StatusCode::FORBIDDEN,
                "role_insufficient",
                "the role of the token does not allow the request",
            )
            .cause(limit_of(role))
            .remedy("use a token of another role"),
            Refusal::Roles(roles) => Self::new(
                StatusCode::FORBIDDEN,
                "role_insufficient",
                "the role of the user does not allow the request",
            )
            .cause(
                roles
                    .iter()
                    .map(|role| limit_of(*role))
                    .collect::<Vec<_>>()
                    .join("; "),
            )
            .remedy("ask an operator for another role, or use a token"),
            Refusal::Agent => Self::new(
                StatusCode::FORBIDDEN,
                "scope_insufficient",
                "the request is outside the scope of the token",
            )
            .cause("the token is limited to other agents")
            .remedy("use the id of an agent in its scope, or another token"),
            Refusal::Wide => Self::new(
                StatusCode::FORBIDDEN,
                "scope_insufficient",
                "the request is outside the scope of the token",
            )
            .cause("the token is limited to some agents or storages, and the request is not")
            .remedy("use a request that names the agent or storage in its path, or another token"),
            Refusal::Storage(storage) => StorageError::StorageNotFound(storage).into(),
            Refusal::Method(_) => Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "method not allowed",
            )
            .cause("the path exists, but not for this method")
            .remedy("use one of the methods in the Allow field"),
        }
    }
}

impl From<Ended> for Problem {
    fn from(ended: Ended) -> Self {
        let refusal = match ended {
            Ended::NoToken => Refusal::NoToken,
            Ended::Token(why) => Refusal::Token(why),
        };
        Self::from(refusal).closing()
    }
}

impl From<TokensError> for Problem {
    fn from(error: TokensError) -> Self {
        let detail = error.to_string();
        match error {
            TokensError::Storage(error) => error.into(),
            TokensError::Ended(ended) => ended.into(),
            TokensError::NotFound(_) => Self::new(
                StatusCode::NOT_FOUND,
                "token_not_found",
                "there is no such token",
            )
            .detail(detail)
            .cause("tokens are named by their id")
            .remedy("GET /api/v1/tokens lists them"),
            TokensError::Invalid(_) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "token_malformed",
                "the token cannot be created",
            )
            .detail(detail)
            .cause("its name, scope or expiry is not allowed")
            .remedy("correct what detail names"),
            TokensError::FirstNotOperator => Self::new(
                StatusCode::CONFLICT,
                "first_token_not_operator",
                "the first token must be an operator's",
            )
            .detail(detail)
            .cause("from the first token on, every request needs one")
            .remedy("create a token with the role operator and without a scope first"),
            TokensError::TooMany => Self::new(
                StatusCode::CONFLICT,
                "tokens_exhausted",
                "there are too many tokens",
            )
            .detail(detail)
            .cause("tokens that are revoked or expired are kept")
            .remedy("use fewer tokens with wider scopes"),
            TokensError::Damaged(_) | TokensError::NoRandomness(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "internal error",
            )
            .detail(detail)
            .cause("the server cannot make or keep tokens")
            .remedy("search the server's log for the request id"),
        }
    }
}
