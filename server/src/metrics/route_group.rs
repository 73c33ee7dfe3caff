//! Groups of routes in metrics: few, fixed, and determined by the path alone.

use http::Method;

/// The path of a call with spans over gRPC.
pub(crate) const OTLP_EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A group of routes with similar cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteGroup {
    /// File bytes and single packets.
    Files,
    /// Incoming packets.
    Packets,
    /// Everything else below `/storages`.
    Storages,
    /// Everything else below `/agents`.
    Agents,
    /// Other paths of the API.
    Api,
    /// Health and metrics.
    Health,
    /// Everything else.
    Other,
}

impl RouteGroup {
    /// In the order of `index`.
    pub(crate) const ALL: [Self; 7] = [
        Self::Files,
        Self::Packets,
        Self::Storages,
        Self::Agents,
        Self::Api,
        Self::Health,
        Self::Other,
    ];

    /// Value of the label `route`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Packets => "packets",
            Self::Storages => "storages",
            Self::Agents => "agents",
            Self::Api => "api",
            Self::Health => "health",
            Self::Other => "other",
        }
    }

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|each| *each == self).unwrap_or(0)
    }

    /// The group a request belongs to.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        if path.starts_with("/storage/") {
            // A view is a query.
            return if path.contains("/view/") {
                Self::Storages
            } else {
                Self::Files
            };
        }
        let Some(rest) = path.strip_prefix("/api/v1") else {
            return match path {
                "/metrics" | "/livez" | "/readyz" => Self::Health,
                "/v1/traces" | OTLP_EXPORT => Self::Packets,
                _ => Self::Other,
            };
        };
        if rest.ends_with("/packets") {
            Self::Packets
        } else if rest.starts_with("/storages") {
            let is_packet = method != Method::POST && rest.contains("/packets/");
            if is_packet {
                Self::Files
            } else {
                Self::Storages
            }
        } else if rest.starts_with("/agents") {
            Self::Agents
        } else {
            Self::Api
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::{OTLP_EXPORT, RouteGroup};

    #[test]
    fn paths_fall_into_groups() {
        for (path, group) in [
            ("/storage/x/y.itdata", RouteGroup::Files),
            ("/storage/x/view/1-2.json", RouteGroup::Storages),
            ("/api/v1/storages/x/packets/7", RouteGroup::Files),
            (
                "/api/v1/storages/x/agents/a/streams/s/packets",
                RouteGroup::Packets,
            ),
            ("/api/v1/agents/a/streams/s/packets", RouteGroup::Packets),
            ("/api/v1/storages", RouteGroup::Storages),
            ("/api/v1/agents/a", RouteGroup::Agents),
            ("/api/v1/query", RouteGroup::Api),
            ("/v1/traces", RouteGroup::Packets),
            (OTLP_EXPORT, RouteGroup::Packets),
            ("/livez", RouteGroup::Health),
            ("/", RouteGroup::Other),
        ] {
            assert_eq!(RouteGroup::of(&Method::GET, path), group, "{path}");
        }
        for (index, group) in RouteGroup::ALL.into_iter().enumerate() {
            assert_eq!(group.index(), index);
        }
    }
}
