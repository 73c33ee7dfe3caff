//! Requests that a foreign web page makes a browser send.
//!
//! A page can send requests to any address that the browser reaches, loopback included. `Origin`
//! names the page: a request that may change something is refused unless the page comes from this
//! server. A page whose name was rebound to the server's address has the right origin, but its
//! name in `Host`.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

use crate::authority::authority;
use crate::config::{HttpConfig, items};
use crate::problem::Problem;

/// The names under which the server is used, and the pages that may change things.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins {
    /// Whether every name in `Host` is accepted.
    has_any_host: bool,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
}

impl Origins {
    /// The settings. A server that listens beyond loopback is used under names that only DNS
    /// knows: it accepts all until `http.allowed_hosts` is set.
    pub(crate) fn new(http: &HttpConfig) -> Self {
        let list =
            |text: &str| -> Vec<String> { items(text).map(str::to_ascii_lowercase).collect() };
        let allowed_hosts = list(&http.allowed_hosts);
        let is_local = http.listen.ip().to_canonical().is_loopback();
        Self {
            has_any_host: !is_local && allowed_hosts.is_empty(),
            allowed_hosts,
            allowed_origins: list(&http.allowed_origins),
        }
    }

    /// The problem of a request with this target, `Host` and `Origin`.
    pub(crate) fn refusal(
        &self,
        method: &Method,
        target: &Uri,
        headers: &HeaderMap,
    ) -> Option<Problem> {
        let field = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let field = field.filter(|field| !field.is_empty());
        // An absolute target takes precedence (RFC 9112 section 3.2.2); a proxy in front may have
        // looked at the field.
        let target = target.authority().map(|target| target.as_str().as_bytes());
        let mut host = None;
        for name in [field, target].into_iter().flatten() {
            let Some(named) = authority(name) else {
                return Some(host_malformed());
            };
            if !self.is_allowed_host(named.host()) {
                return Some(host_not_allowed(named.host()));
            }
            host = Some(named);
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return None;
        }
        let is_allowed = |text: &str| {
            let listed = |allowed: &String| allowed.eq_ignore_ascii_case(text);
            self.allowed_origins.iter().any(listed)
        };
        let is_foreign = |origin: &&HeaderValue| {
            let is_own = (host.as_ref()).is_some_and(|host| is_same(origin, host));
            !is_own && !origin.to_str().is_ok_and(is_allowed)
        };
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let foreign = origins.find(is_foreign)?;
        Some(origin_not_allowed(&String::from_utf8_lossy(
            foreign.as_bytes(),
        )))
    }

    /// Only names with a dot are public names, which an attacker can rebind.
    fn is_allowed_host(&self, host: &str) -> bool {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let address = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        self.has_any_host
            || address.unwrap_or(&name).parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || name.ends_with(".localhost")
            || self.allowed_hosts.contains(&name)
    }
}

/// Whether `origin` is a page of `host`. A proxy may have ended TLS, so that the scheme says
/// nothing, and a missing port is the scheme's.
fn is_same(origin: &HeaderValue, host: &Authority) -> bool {
    let Ok(text) = origin.to_str() else {
        return false;
    };
    let (rest, port) = match text.split_once("://") {
        Some(("http", rest)) => (rest, 80),
        Some(("https", rest)) => (rest, 443),
        _ => return false,
    };
    let Ok(page) = rest.parse::<Authority>() else {
        return false;
    };
    page.host().eq_ignore_ascii_case(host.host())
        && page.port_u16().unwrap_or(port) == host.port_u16().unwrap_or(port)
}

fn host_malformed() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "request_malformed",
        "the request is malformed",
    )
    .detail("the Host field, or the host of an absolute target, is no host with an optional port")
    .cause("HTTP/1.1 requires it (RFC 9112 section 3.2)")
    .remedy("send the host and port of the server")
    .closing()
}

fn host_not_allowed(host: &str) -> Problem {
    Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "host_not_allowed",
        "the server is not used under this name",
    )
    .detail(format!("Host or the absolute target names {host:?}"))
    .cause("a web page could have bound its name to the address of this server")
    .remedy("use the server's address, or add the name to http.allowed_hosts")
    .closing()
}

fn origin_not_allowed(origin: &str) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "origin_not_allowed",
        "pages of this origin may not change anything",
    )
    .detail(format!("Origin is {origin:?}"))
    .cause("a browser sent the request for a web page that is not of this server")
    .remedy("add the origin to http.allowed_origins if the page is to be trusted")
    .closing()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(listen: &str) -> HttpConfig {
        HttpConfig {
            listen: listen.parse().unwrap(),
            ..HttpConfig::default()
        }
    }

    /// The status of the refusal; 0 for none.
    fn check(http: &HttpConfig, method: &Method, host: &str, origin: &str, wanted: u16) {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if !origin.is_empty() {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let problem = Origins::new(http).refusal(method, &Uri::default(), &headers);
        let status = problem.map_or(0, |problem| problem.status().as_u16());
        assert_eq!(status, wanted, "{method} Host: {host} Origin: {origin}");
    }

    #[test]
    fn names_that_a_page_can_rebind_are_refused() {
        for (host, on_loopback, elsewhere) in [
            ("127.0.0.1:7117", 0, 0),
            ("192.0.2.7", 0, 0),
            ("[::1]:7117", 0, 0),
            ("localhost", 0, 0),
            ("LocalHost:80", 0, 0),
            ("traces.localhost:7117", 0, 0),
            ("tracehold:7117", 0, 0),
            ("", 0, 0),
            ("evil.example", 421, 0),
            ("evil.example.", 421, 0),
            ("127.0.0.1.evil.example:7117", 421, 0),
            ("localhost.evil.example", 421, 0),
            ("user@localhost", 400, 400),
            ("localhost:port", 400, 400),
            ("localhost:99999", 400, 400),
            ("a b", 400, 400),
            ("http://localhost/", 400, 400),
        ] {
            check(&http("127.0.0.1:7117"), &Method::GET, host, "", on_loopback);
            check(&http("0.0.0.0:7117"), &Method::GET, host, "", elsewhere);
        }
        for listen in ["127.0.0.1:7117", "0.0.0.0:7117"] {
            let named = HttpConfig {
                allowed_hosts: "traces.example, other.example".to_owned(),
                ..http(listen)
            };
            check(&named, &Method::GET, "Traces.Example:443", "", 0);
            check(&named, &Method::GET, "other.example", "", 0);
            check(&named, &Method::GET, "evil.example", "", 421);
        }
    }

    #[test]
    fn the_host_of_an_absolute_target_is_checked_as_well() {
        let own = Origins::new(&http("127.0.0.1:7117"));
        for (host, target, origin, wanted) in [
            ("127.0.0.1", "http://127.0.0.1/livez", "", 0),
            ("127.0.0.1", "http://evil.example/livez", "", 421),
            ("evil.example", "http://127.0.0.1/livez", "", 421),
            ("127.0.0.1", "http://user@127.0.0.1/livez", "", 400),
            ("a b", "http://127.0.0.1/livez", "", 400),
            ("", "http://evil.example/livez", "", 421),
            ("a", "http://b/livez", "http://b", 0),
            ("a", "http://b/livez", "http://a", 403),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if !origin.is_empty() {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            let problem = own.refusal(&Method::POST, &target.parse().unwrap(), &headers);
            let status = problem.map_or(0, |problem| problem.status().as_u16());
            assert_eq!(status, wanted, "{target} Host: {host} Origin: {origin}");
        }
    }

    #[test]
    fn foreign_pages_change_nothing() {
        let own = http("127.0.0.1:7117");
        for (host, origin, wanted) in [
            ("localhost:7117", "", 0),
            ("localhost:7117", "http://localhost:7117", 0),
            ("localhost", "http://localhost", 0),
            ("localhost:80", "http://localhost", 0),
            ("localhost", "https://LOCALHOST:443", 0),
            ("localhost:7117", "http://localhost:7118", 403),
            ("localhost:7117", "http://localhost", 403),
            ("localhost:7117", "http://127.0.0.1:7117", 403),
            ("localhost:7117", "https://evil.example", 403),
            ("localhost:7117", "null", 403),
            ("", "http://localhost:7117", 403),
        ] {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                check(&own, &method, host, origin, wanted);
            }
            for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
                check(&own, &method, host, origin, 0);
            }
        }
        // None of several origins may be foreign.
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost:7117".parse().unwrap());
        for origin in ["http://localhost:7117", "https://evil.example"] {
            headers.append(header::ORIGIN, origin.parse().unwrap());
        }
        let problem = Origins::new(&own).refusal(&Method::POST, &Uri::default(), &headers);
        assert_eq!(problem.unwrap().status(), StatusCode::FORBIDDEN);
        let trusting = HttpConfig {
            allowed_origins: "https://ui.perfetto.dev".to_owned(),
            ..own
        };
        let host = "localhost:7117";
        let page = "https://ui.perfetto.dev";
        check(&trusting, &Method::POST, host, page, 0);
        check(&trusting, &Method::POST, host, "https://evil.example", 403);
    }
}
