//! Lists of storages, page by page.

use std::cell::Cell;

use storage_core::{Engine, EngineConfig, IoChoice, ListOrder, NewStorage, StorageFilter};
use storage_format::StorageId;

const STORAGES: usize = 300;
const PAGE: usize = 10;

/// A page costs what it looks at, and not what there is; together the pages are the whole list.
#[tokio::test(flavor = "multi_thread")]
async fn pages_cost_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EngineConfig::new(folder.path());
    config.io = IoChoice::Blocking;
    config.disk_low.stop_free_bytes = 0;
    config.disk_low.stop_free_ratio = 0.0;
    let engine = Engine::open(config).await.unwrap();
    let storages = engine.storages();
    let mut created = Vec::new();
    for number in 0..STORAGES {
        let new = NewStorage {
            name: if number % 2 == 0 { "even" } else { "odd" }.into(),
            ..NewStorage::default()
        };
        created.push(storages.create(new).await.unwrap().0.id);
    }
    let filter = StorageFilter::default();
    for is_newest_first in [false, true] {
        let (mut after, mut found) = (None, Vec::<StorageId>::new());
        loop {
            let looked_at = Cell::new(0);
            let wants = |_| {
                looked_at.set(looked_at.get() + 1);
                true
            };
            let order = ListOrder {
                after,
                is_newest_first,
            };
            let page = storages.each(&filter, order, wants).take(PAGE);
            let page: Vec<StorageId> = page.map(|info| info.id).collect();
            assert!(looked_at.get() <= PAGE, "{} for a page", looked_at.get());
            after = page.last().copied();
            found.extend(&page);
            if page.is_empty() {
                break;
            }
        }
        if is_newest_first {
            found.reverse();
        }
        assert_eq!(found, created);
    }
    // A page begins after a storage that is gone.
    storages.delete(created[100]).await.unwrap();
    let order = ListOrder {
        after: Some(created[100]),
        is_newest_first: false,
    };
    let next = storages.each(&filter, order, |_| true).next();
    assert_eq!(next.unwrap().id, created[101]);
    let odd = StorageFilter {
        name: Some("odd".into()),
        ..StorageFilter::default()
    };
    assert_eq!(storages.list(&odd).len(), STORAGES / 2);
    let first = storages.each(&odd, order, |_| true).next();
    assert_eq!(first.unwrap().id, created[101]);
    engine.shutdown().await.unwrap();
}
