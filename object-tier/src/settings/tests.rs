//! Settings are used or refused before anything is asked of a store.

use super::*;

fn settings(url: &str, endpoint: &str) -> StoreSettings {
    StoreSettings {
        url: url.to_owned(),
        endpoint: Some(endpoint.to_owned()).filter(|url| !url.is_empty()),
        requests_max: 1,
        timeout: Duration::from_secs(1),
        ..StoreSettings::default()
    }
}

#[test]
fn what_is_no_bucket_is_refused() {
    let error = settings("ftp://traces", "").open().unwrap_err().to_string();
    assert!(error.contains("its URL is \"ftp://traces\""), "{error}");
    assert!(error.contains("set it to s3://BUCKET/PREFIX"), "{error}");
}

#[cfg(feature = "azure")]
mod of_azure {
    use super::*;

    fn with(variables: &[(&str, &str)], endpoint: &str) -> Result<Bucket, TierError> {
        let variables = variables.iter();
        let variables = variables.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let mut settings = settings("azure://traces/a", endpoint);
        settings.credentials = Some(Credentials::Variables(variables.collect()));
        settings.open()
    }

    #[test]
    fn a_file_names_account_and_key() {
        let (name, key) = (
            ("azure_storage_account_name", "traces"),
            ("azure_storage_account_key", "a2V5"),
        );
        let server = "https://traces.blob.core.windows.net/";
        with(&[name, key], "").unwrap();
        with(&[key], server).unwrap();
        for (variables, part) in [
            (&[key][..], "AZURE_STORAGE_ACCOUNT_NAME"),
            (&[name, ("azure_storage_acount_key", "x")], "acount_key"),
            (&[name, ("azure_storage_account_key", "!")], "Access Key"),
        ] {
            let error = with(variables, "").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// A shared access signature is a part of every URL, and URLs are parts of errors.
    #[tokio::test]
    async fn no_error_shows_a_signature() {
        let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = format!("http://{}/traces", closed.local_addr().unwrap());
        drop(closed);
        let signature = "sv=2024-11-04&sig=verysecret";
        let bucket = with(&[("azure_storage_sas_key", signature)], &server).unwrap();
        let body = || bytes::Bytes::from_static(b"x");
        let errors = tokio::join!(
            bucket.put("a", body()),
            bucket.get("a"),
            bucket.get_range("a", 0..1),
            bucket.delete("a"),
            bucket.list_all("a"),
        );
        let errors = [
            errors.0.unwrap_err(),
            errors.1.unwrap_err(),
            errors.2.unwrap_err(),
            errors.3.unwrap_err(),
            errors.4.unwrap_err(),
        ];
        for error in errors {
            let text = format!("{error} {error:?}");
            assert!(text.contains("retr"), "it was tried: {text}");
            assert!(!text.contains("verysecret"), "{text}");
        }
    }
}

#[cfg(feature = "gcp")]
mod of_google {
    use super::*;

    /// What is wrong with a key is said without the key.
    #[test]
    fn a_key_that_cannot_sign_is_refused() {
        let key = r#"{"client_email": "a@b", "private_key": "verysecret", "private_key_id": "1"}"#;
        let mut settings = settings("gs://traces/a", "");
        settings.credentials = Some(Credentials::ServiceAccount(key.to_owned()));
        let error = settings.open().unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("verysecret"),
            "{error}"
        );
    }
}
