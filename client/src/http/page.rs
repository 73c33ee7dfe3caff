//! Lists that the server returns in pages.

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::call::{Call, Client};
use super::server_url::with_query;
use crate::ClientError;

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    /// Cursor of the next page; `None` on the last one.
    #[serde(default = "Option::default")]
    next: Option<String>,
}

impl Client {
    /// Calls `each` with every item of the list at `path`, page by page.
    pub(super) async fn each_item<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &[(&str, Option<&str>)],
        mut each: impl FnMut(T) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut cursor: Option<String> = None;
        loop {
            let parameters = [filter, &[("cursor", cursor.as_deref())]].concat();
            let url = with_query(self.server().api(path), &parameters);
            let page: Page<T> = self.json(Call::new(Method::GET, url)).await?;
            page.items.into_iter().try_for_each(&mut each)?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// All items of the list at `path`.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &[(&str, Option<&str>)],
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let push = |item| {
            items.push(item);
            Ok(())
        };
        self.each_item(path, filter, push).await?;
        Ok(items)
    }
}
