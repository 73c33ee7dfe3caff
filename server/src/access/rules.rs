//! Who may use which route: one row for each method and path of the OpenAPI document.
//!
//! A test compares the rows with the document, so that a route cannot be added without a row; a
//! request of a route without one is refused.

use http::Method;

use super::token::Role;
use crate::metrics::OTLP_EXPORT;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Nothing: health, and pages without data.
    Nothing,
    /// Open, or for readers, as configured.
    Metrics,
    /// To know which storages there are: any role.
    Find,
    /// To push packets.
    Push,
    /// To read events, files and everything else that can be read.
    Read,
    /// To have everything read again.
    Verify,
    /// To change storages, labels, recordings, …
    Operate,
}

/// What a route touches besides the storage or agent that its path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// Nothing.
    Nothing,
    /// Only what the caller may see: the handler asks.
    Seen,
    /// An agent, which is not of one storage.
    Agents,
    /// Any storage.
    Storages,
    /// Any storage and any agent.
    Everything,
}

/// The rule of one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(crate) right: Right,
    pub(super) beyond: Beyond,
}

macro_rules! rules {
    ($($method:ident $path:literal $right:ident $beyond:ident;)*) => {
        &[$(Rule {
            method: stringify!($method),
            path: $path,
            right: Right::$right,
            beyond: Beyond::$beyond,
        }),*]
    };
}

/// All rules, by path.
pub(super) const RULES: &[Rule] = rules! {
    GET "/" Nothing Nothing;
    GET "/docs" Nothing Nothing;
    GET "/page/{file}" Nothing Nothing;
    GET "/openapi.json" Nothing Nothing;
    GET "/livez" Nothing Nothing;
    GET "/readyz" Nothing Nothing;
    GET "/metrics" Metrics Everything;
    POST "/v1/traces" Push Storages;
    GET "/storage/{id}/{file}" Read Nothing;
    GET "/storage/{id}/events/{table}" Read Nothing;
    GET "/storage/{id}/references.json" Read Nothing;
    GET "/storage/{id}/view/{window}" Read Nothing;
    GET "/api/v1/agents" Find Seen;
    GET "/api/v1/agents/{agent}" Find Agents;
    PUT "/api/v1/agents/{agent}" Push Agents;
    DELETE "/api/v1/agents/{agent}" Operate Agents;
    PUT "/api/v1/agents/{agent}/metadata" Push Agents;
    PUT "/api/v1/agents/{agent}/quota" Operate Agents;
    DELETE "/api/v1/agents/{agent}/quota" Operate Agents;
    PUT "/api/v1/agents/{agent}/streams/{stream}" Push Agents;
    HEAD "/api/v1/agents/{agent}/streams/{stream}/packets" Push Storages;
    POST "/api/v1/agents/{agent}/streams/{stream}/packets" Push Storages;
    GET "/api/v1/buffer" Read Everything;
    POST "/api/v1/buffer/copy" Operate Everything;
    GET "/api/v1/caller" Find Seen;
    GET "/api/v1/changes" Read Seen;
    GET "/api/v1/io-trace" Read Everything;
    POST "/api/v1/io-trace/start" Operate Everything;
    POST "/api/v1/io-trace/stop" Operate Everything;
    GET "/api/v1/jobs" Read Everything;
    GET "/api/v1/jobs/{job}" Read Seen;
    DELETE "/api/v1/jobs/{job}" Operate Everything;
    GET "/api/v1/label-types" Read Everything;
    GET "/api/v1/label-types/{name}" Read Everything;
    PUT "/api/v1/label-types/{name}" Operate Everything;
    DELETE "/api/v1/label-types/{name}" Operate Everything;
    DELETE "/api/v1/label-types/{name}/values/{value}" Operate Everything;
    GET "/api/v1/nodes" Read Everything;
    POST "/api/v1/query" Read Everything;
    POST "/api/v1/query/splits" Read Everything;
    GET "/api/v1/recordings" Read Everything;
    POST "/api/v1/recordings" Operate Everything;
    GET "/api/v1/recordings/{id}" Read Everything;
    DELETE "/api/v1/recordings/{id}" Operate Everything;
    GET "/api/v1/retention" Read Everything;
    GET "/api/v1/storages" Find Seen;
    POST "/api/v1/storages" Operate Everything;
    POST "/api/v1/storages/import" Operate Everything;
    GET "/api/v1/storages/{id}" Find Nothing;
    PATCH "/api/v1/storages/{id}" Operate Nothing;
    DELETE "/api/v1/storages/{id}" Operate Nothing;
    HEAD "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets" Push Nothing;
    POST "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets" Push Nothing;
    PUT "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/provenance" Push Nothing;
    POST "/api/v1/storages/{id}/adopt" Operate Nothing;
    POST "/api/v1/storages/{id}/copy" Operate Everything;
    GET "/api/v1/storages/{id}/descriptors" Read Nothing;
    GET "/api/v1/storages/{id}/export" Read Nothing;
    GET "/api/v1/storages/{id}/files" Read Nothing;
    POST "/api/v1/storages/{id}/finalize" Operate Nothing;
    GET "/api/v1/storages/{id}/labels" Read Nothing;
    POST "/api/v1/storages/{id}/labels" Operate Nothing;
    PUT "/api/v1/storages/{id}/labels/{name}" Operate Nothing;
    DELETE "/api/v1/storages/{id}/labels/{name}" Operate Nothing;
    POST "/api/v1/storages/{id}/open" Operate Nothing;
    GET "/api/v1/storages/{id}/packets/{number}" Read Nothing;
    POST "/api/v1/storages/{id}/queries" Read Nothing;
    POST "/api/v1/storages/{id}/query" Read Nothing;
    POST "/api/v1/storages/{id}/query/splits" Read Nothing;
    GET "/api/v1/storages/{id}/status" Find Nothing;
    GET "/api/v1/storages/{id}/shares" Operate Nothing;
    POST "/api/v1/storages/{id}/shares" Operate Nothing;
    DELETE "/api/v1/storages/{id}/shares/{share}" Operate Nothing;
    POST "/api/v1/storages/{id}/tier" Operate Nothing;
    POST "/api/v1/storages/{id}/verify" Verify Nothing;
    GET "/api/v1/storages/{id}/view/{window}" Read Nothing;
    GET "/api/v1/tokens" Operate Everything;
    POST "/api/v1/tokens" Operate Everything;
    DELETE "/api/v1/tokens/{token}" Operate Everything;
};

/// The route that also repairs, which a query string asks for.
const VERIFY: &str = "/api/v1/storages/{id}/verify";

/// The rule of a verification with a query string: planned or confirmed, a repair is an operator's.
const REPAIR: Rule = Rule {
    method: "POST",
    path: VERIFY,
    right: Right::Operate,
    beyond: Beyond::Nothing,
};

/// The rule of spans over gRPC, which OpenAPI cannot describe: as over HTTP.
const SPANS: Rule = Rule {
    method: "POST",
    path: OTLP_EXPORT,
    right: Right::Push,
    beyond: Beyond::Storages,
};

/// The rule of a request to this route.
pub(crate) fn rule_for(method: &Method, path: &str, query: Option<&str>) -> Option<&'static Rule> {
    match path {
        VERIFY if query.is_some_and(|query| !query.is_empty()) => Some(&REPAIR),
        OTLP_EXPORT => Some(&SPANS),
        _ => rule_of(method, path),
    }
}

/// The methods of the routes with this path, as the field `Allow` lists them.
pub(super) fn methods(path: &str) -> String {
    let rules = RULES.iter().filter(|rule| rule.path == path);
    rules.map(|rule| rule.method).collect::<Vec<_>>().join(", ")
}

/// The rule of a route; a HEAD request without a rule of its own has that of GET.
pub(crate) fn rule_of(method: &Method, path: &str) -> Option<&'static Rule> {
    let of = |method: &str| {
        let mut rules = RULES.iter();
        rules.find(|rule| rule.method == method && rule.path == path)
    };
    match of(method.as_str()) {
        None if *method == Method::HEAD => of("GET"),
        found => found,
    }
}

impl Role {
    /// Whether this role has a right.
    pub(crate) fn has(self, right: Right) -> bool {
        match right {
            Right::Nothing | Right::Find => true,
            Right::Push => matches!(self, Self::Agent | Self::Operator),
            Right::Read => matches!(self, Self::Reader | Self::Operator | Self::Share),
            Right::Verify | Right::Metrics => matches!(self, Self::Reader | Self::Operator),
            Right::Operate => self == Self::Operator,
        }
    }
}
