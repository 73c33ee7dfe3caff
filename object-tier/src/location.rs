//! Where a bucket is: the URL of the configuration, taken apart.

/// What serves a bucket. The scheme of its URL says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Amazon S3, and all that speak like it.
    S3,
    /// Azure Blob Storage, whose buckets are called containers.
    Azure,
    /// Google Cloud Storage.
    Gcp,
}

const SERVICES: [Service; 3] = [Service::S3, Service::Azure, Service::Gcp];

impl Service {
    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "azure",
            Self::Gcp => "gs",
        }
    }

    /// What its URLs look like.
    fn form(self) -> &'static str {
        match self {
            Self::S3 => "s3://BUCKET/PREFIX",
            Self::Azure => "azure://CONTAINER/PREFIX",
            Self::Gcp => "gs://BUCKET/PREFIX",
        }
    }

    /// The cargo feature with which it is compiled, if it is optional.
    fn feature(self) -> Option<&'static str> {
        match self {
            Self::S3 => None,
            Self::Azure => Some("azure"),
            Self::Gcp => Some("gcp"),
        }
    }

    fn is_built_in(self) -> bool {
        match self {
            Self::S3 => true,
            Self::Azure => cfg!(feature = "azure"),
            Self::Gcp => cfg!(feature = "gcp"),
        }
    }
}

/// A bucket, and the folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// What serves it.
    pub service: Service,
    /// Its name there.
    pub bucket: String,
    /// What the keys of all objects begin with; may be empty.
    pub prefix: String,
}

/// A URL that names no bucket that this program can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct LocationError {
    /// What is wrong, after the name of the setting.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Location {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// When it names no bucket, or a service that was not compiled into this program.
    pub fn parse(url: &str) -> Result<Self, LocationError> {
        Self::parse_with(url, Service::is_built_in)
    }

    fn parse_with(url: &str, is_built_in: impl Fn(Service) -> bool) -> Result<Self, LocationError> {
        let forms: Vec<_> = SERVICES
            .into_iter()
            .filter(|&service| is_built_in(service))
            .map(Service::form)
            .collect();
        let forms = format!("set it to {}", forms.join(" or "));
        let found = url.split_once("://").and_then(|(scheme, rest)| {
            let mut services = SERVICES.into_iter();
            let service = services.find(|service| service.scheme() == scheme)?;
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            (!bucket.is_empty()).then_some((service, bucket, prefix))
        });
        let Some((service, bucket, prefix)) = found else {
            return Err(LocationError {
                what: format!("is {url:?}, which is not a bucket"),
                remedy: forms,
            });
        };
        match service.feature().filter(|_| !is_built_in(service)) {
            Some(feature) => Err(LocationError {
                what: format!("is {url:?}, and this program was built without {feature}"),
                remedy: format!(
                    "build it with `cargo build --release --package server --features {feature}`, \
                     or {forms}"
                ),
            }),
            None => Ok(Self {
                service,
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_service_a_bucket_and_a_prefix() {
        for (url, service, bucket, prefix) in [
            ("s3://traces", Service::S3, "traces", ""),
            ("s3://traces/a/b", Service::S3, "traces", "a/b"),
            ("azure://traces/a", Service::Azure, "traces", "a"),
            ("gs://traces/", Service::Gcp, "traces", ""),
        ] {
            let found = Location::parse_with(url, |_| true).unwrap();
            let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
            let expected = Location {
                service,
                bucket,
                prefix,
            };
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_what_to_do() {
        let all = "s3://BUCKET/PREFIX or azure://CONTAINER/PREFIX or gs://BUCKET/PREFIX";
        for (url, is_optional, parts) in [
            ("traces", true, ["not a bucket", all]),
            ("s3://", true, ["not a bucket", all]),
            ("gs:///traces", true, ["not a bucket", all]),
            ("ftp://traces", true, ["not a bucket", all]),
            ("memory://", true, ["not a bucket", all]),
            (
                "ftp://traces",
                false,
                ["not a bucket", "s3://BUCKET/PREFIX"],
            ),
            (
                "azure://traces",
                false,
                ["without azure", "--features azure`"],
            ),
            ("gs://traces/x", false, ["without gcp", "--features gcp`"]),
        ] {
            let is_built_in = |service| is_optional || service == Service::S3;
            let error = Location::parse_with(url, is_built_in).unwrap_err();
            assert!(error.what.contains(parts[0]), "{url}: {error}");
            assert!(error.remedy.contains(parts[1]), "{url}: {error}");
            let offered = error.remedy.contains("gs://");
            assert_eq!(offered, is_optional, "{url}: {error}");
        }
    }
}
