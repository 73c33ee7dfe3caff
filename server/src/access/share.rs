//! Shares: URLs that give access to one storage without a token.
//!
//! The secret is the first part of the path, `/s/SECRET/…`, and is taken out of it before anything
//! else sees the request: no log line, no problem document and no handler has it.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Request, Uri};

use super::token::Secret;

/// How paths of shares begin.
const PREFIX: &str = "/s/";

/// A path that nothing has.
const NO_PATH: &str = "/s";

/// What a request presented in its path; `None` if that cannot be a secret.
#[derive(Debug, Clone)]
pub(crate) struct Share(Arc<Option<Secret>>);

impl Share {
    pub(super) fn secret(&self) -> Option<&Secret> {
        self.0.as_ref().as_ref()
    }
}

/// The path that everything below belongs to a share with this secret.
pub(crate) fn path_of(secret: &str) -> String {
    format!("{PREFIX}{secret}/")
}

/// Takes the secret out of the path of a request to a share, and leaves it as an extension. Returns
/// whether it was one.
pub(crate) fn take<B>(request: &mut Request<B>) -> bool {
    let uri = request.uri();
    let Some(rest) = uri.path().strip_prefix(PREFIX) else {
        return false;
    };
    let (secret, path) = rest.split_once('/').unwrap_or((rest, ""));
    let secret = Secret::parse(secret);
    // A second secret would stay in the path. There is nothing below it.
    let is_nested = path.trim_start_matches('/').starts_with("s/");
    let target = match uri.query() {
        _ if is_nested => NO_PATH.to_owned(),
        Some(query) => format!("/{path}?{query}"),
        None => format!("/{path}"),
    };
    let mut parts = uri.clone().into_parts();
    // What was a path and a query still is.
    let target = target.parse();
    parts.path_and_query = Some(target.unwrap_or(PathAndQuery::from_static("/")));
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.extensions_mut().insert(Share(Arc::new(secret)));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_the_path() {
        let secret = format!("tracehold_{}_{}", "ab".repeat(8), "cd".repeat(32));
        for (sent, left, is_share, is_secret) in [
            ("/s/SECRET/storage/x/y?a=b", "/storage/x/y?a=b", true, true),
            ("/s/SECRET/", "/", true, true),
            ("/s/SECRET", "/", true, true),
            ("/s/SECRET?x", "/?x", true, true),
            ("/s/SECRET//a", "//a", true, true),
            ("/s/SECRET/s/SECRET/storage/x", "/s", true, true),
            ("/s/SECRET//s/SECRET?a=SECRET", "/s", true, true),
            ("/s/other/s/SECRET", "/s", true, false),
            ("/s/other/a", "/a", true, false),
            ("/s//a", "/a", true, false),
            ("/storage/s/SECRET", "/storage/s/SECRET", false, false),
            ("/S/SECRET/a", "/S/SECRET/a", false, false),
        ] {
            for host in ["", "http://h:1"] {
                let target = format!("{host}{}", sent.replace("SECRET", &secret));
                let mut request = Request::builder().uri(&target).body(()).unwrap();
                assert_eq!(take(&mut request), is_share, "{sent}");
                let found = request.uri().path_and_query().unwrap().as_str();
                assert_eq!(found, left.replace("SECRET", &secret), "{sent}");
                let share = request.extensions().get::<Share>();
                let secret = share.and_then(Share::secret);
                assert_eq!(secret.is_some(), is_secret, "{sent}");
            }
        }
    }
}
