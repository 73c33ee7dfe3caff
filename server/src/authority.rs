//! The host and port in a request or setting.

use http::uri::Authority;

/// A host and an optional port, as RFC 9112 section 3.2 defines the `Host` field.
pub(crate) fn authority(text: &[u8]) -> Option<Authority> {
    let authority = Authority::try_from(text).ok()?;
    let port = authority.as_str().strip_prefix(authority.host())?;
    let is_port = port.is_empty() || port == ":" || authority.port_u16().is_some();
    (is_port && !authority.as_str().contains('@')).then_some(authority)
}
