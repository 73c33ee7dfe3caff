//! Section `[otlp]`: the ports of OpenTelemetry, and how much one request may contain.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trace_kinds::otlp::RequestLimits;

use super::invalid::InvalidSetting;

/// Section `[otlp]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// Where OTLP/gRPC is accepted in addition to `http.listen`.
    pub grpc_listen: OtlpListen,
    /// Where OTLP/HTTP is accepted in addition to `http.listen`.
    pub http_listen: OtlpListen,
    /// Maximum number of `ResourceSpans` in a request.
    pub resources_max: u32,
    /// Maximum number of `ScopeSpans` in a request.
    pub scopes_max: u32,
    /// Maximum number of spans in a request.
    pub spans_max: u32,
    /// Maximum number of events and links of all spans of a request.
    pub events_max: u32,
    /// Maximum number of attributes in a request, with the entries of maps and arrays.
    pub attributes_max: u32,
    /// Maximum number of maps and arrays in each other in an attribute.
    pub value_depth_max: u32,
}

impl OtlpConfig {
    /// How much a request may contain.
    pub fn request_limits(&self) -> RequestLimits {
        RequestLimits {
            resources: self.resources_max,
            scopes: self.scopes_max,
            spans: self.spans_max,
            events: self.events_max,
            attributes: self.attributes_max,
            value_depth: self.value_depth_max,
        }
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            grpc_listen: OtlpListen::Port(4317),
            http_listen: OtlpListen::Port(4318),
            resources_max: 16_384,
            scopes_max: 65_536,
            spans_max: 262_144,
            events_max: 1_048_576,
            attributes_max: 4_194_304,
            value_depth_max: 32,
        }
    }
}

/// An address, a port of the address of `http.listen`, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OtlpListen {
    /// Nowhere.
    Off,
    /// This port, or a free one if it is 0; if another program has it, the server runs without.
    Port(u16),
    /// Exactly here.
    At(SocketAddr),
}

impl OtlpListen {
    /// The address beside a server that listens on `ip`.
    pub fn beside(self, ip: IpAddr) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::Port(port) => Some(SocketAddr::new(ip, port)),
            Self::At(address) => Some(address),
        }
    }
}

impl FromStr for OtlpListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let port = text.parse().map(Self::Port);
        port.or_else(|_| text.parse().map(Self::At)).map_err(|_| {
            format!(
                "{text:?} is neither off nor a port such as 4317 nor an address with a port such \
                 as 127.0.0.1:4317"
            )
        })
    }
}

impl TryFrom<String> for OtlpListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for OtlpListen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => out.write_str("off"),
            Self::Port(port) => write!(out, "{port}"),
            Self::At(address) => write!(out, "{address}"),
        }
    }
}

impl From<OtlpListen> for String {
    fn from(listen: OtlpListen) -> Self {
        listen.to_string()
    }
}

/// The addresses of OpenTelemetry that the server itself has already.
pub(super) fn equal_listens(http: SocketAddr, otlp: &OtlpConfig) -> Vec<InvalidSetting> {
    let ip = http.ip();
    let listens = [
        ("http.listen", Some(http)),
        ("otlp.grpc_listen", otlp.grpc_listen.beside(ip)),
        ("otlp.http_listen", otlp.http_listen.beside(ip)),
    ];
    let listens = listens.map(|(key, listen)| (key, listen.filter(|listen| listen.port() > 0)));
    let mut all = Vec::new();
    for (place, (key, listen)) in listens.iter().enumerate() {
        let mut before = listens.iter().take(place);
        if let Some(listen) = listen
            && let Some((other, _)) = before.find(|(_, before)| *before == Some(*listen))
        {
            all.push(InvalidSetting {
                key: (*key).to_owned(),
                what: format!("is {listen}, as {other}: only one can listen there"),
                remedy: format!("choose another port, or switch it off with {key} = \"off\""),
            });
        }
    }
    all
}

/// The addresses that others can reach although nobody is authenticated. None if `is_admitted`:
/// there are tokens, or every client is accepted.
pub(super) fn invalid_listens(
    http: SocketAddr,
    otlp: &OtlpConfig,
    is_admitted: bool,
) -> Vec<InvalidSetting> {
    let ip = http.ip();
    let listens = [
        ("http.listen", Some(http)),
        ("otlp.grpc_listen", otlp.grpc_listen.beside(ip)),
        ("otlp.http_listen", otlp.http_listen.beside(ip)),
    ];
    let mut all: Vec<InvalidSetting> = Vec::new();
    for (key, listen) in listens {
        let open = listen.filter(|listen| !listen.ip().to_canonical().is_loopback());
        let Some(listen) = open.filter(|_| !is_admitted) else {
            continue;
        };
        // A port alone is open because http.listen is, which is reported.
        if key != "http.listen" && listen.ip() == ip {
            continue;
        }
        all.push(InvalidSetting {
            key: key.to_owned(),
            what: format!(
                "is {listen}, which other machines can reach, and there is no authentication: the \
                 data folder has no tokens"
            ),
            remedy: "create a token with `traceholdd token create`, listen on 127.0.0.1 or [::1] \
                     behind a proxy that authenticates, or accept every client with --insecure or \
                     http.insecure = true"
                .to_owned(),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_is_given_once() {
        for (grpc, http, refused) in [
            ("4317", "4318", &[][..]),
            ("0", "0", &[]),
            ("off", "off", &[]),
            ("192.0.2.1:7117", "4318", &[]),
            ("4318", "4318", &["otlp.http_listen"]),
            (
                "7117",
                "127.0.0.1:7117",
                &["otlp.grpc_listen", "otlp.http_listen"],
            ),
        ] {
            let otlp = OtlpConfig {
                grpc_listen: grpc.parse().unwrap(),
                http_listen: http.parse().unwrap(),
                ..OtlpConfig::default()
            };
            let found = equal_listens("127.0.0.1:7117".parse().unwrap(), &otlp);
            let keys: Vec<_> = found.iter().map(|invalid| invalid.key.as_str()).collect();
            assert_eq!(keys, refused, "{grpc} {http}");
        }
    }

    #[test]
    fn ports_and_addresses_are_read() {
        for (text, beside) in [
            ("off", Ok(None)),
            ("4317", Ok(Some("127.0.0.1:4317"))),
            ("0", Ok(Some("127.0.0.1:0"))),
            ("192.0.2.1:9", Ok(Some("192.0.2.1:9"))),
            ("[::1]:9", Ok(Some("[::1]:9"))),
            ("", Err(())),
            ("70000", Err(())),
            ("localhost:4317", Err(())),
            ("192.0.2.1", Err(())),
        ] {
            let listen: Result<OtlpListen, _> = text.parse();
            let found = listen
                .clone()
                .map(|it| it.beside(Ipv4Addr::LOCALHOST.into()));
            let wanted = beside.map(|it| it.map(|address| address.parse().unwrap()));
            assert_eq!(found.map_err(|_| ()), wanted, "{text}");
            if let Ok(listen) = listen {
                assert_eq!(listen.to_string(), text);
            }
        }
    }
}
