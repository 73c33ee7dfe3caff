//! A tier file, or the file with the checksums of granules, that is damaged or lost.

use std::path::PathBuf;

use super::*;

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Flipped,
    Gone,
    Cut,
}

const LOSSES: [Loss; 3] = [Loss::Flipped, Loss::Gone, Loss::Cut];

fn lose(path: &Path, loss: Loss) {
    let mut bytes = std::fs::read(path).unwrap();
    match loss {
        Loss::Gone => return std::fs::remove_file(path).unwrap(),
        Loss::Flipped => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        }
        Loss::Cut => bytes.truncate(bytes.len() / 2),
    }
    std::fs::write(path, bytes).unwrap();
}

/// The storage as a server finds it whose file `name` met with a loss, and that file.
async fn damaged(
    world: &World,
    name: &FileName,
    loss: Loss,
) -> (tempfile::TempDir, Engine, PathBuf) {
    let copy = copy_of_running(world._folder.path());
    let folder = large_file(world).await;
    let folder = folder.parent().unwrap();
    let place = folder.strip_prefix(world._folder.path()).unwrap();
    let path = copy.path().join(place).join(name.to_string());
    lose(&path, loss);
    let engine = open(copy.path(), &world.store).await;
    (copy, engine, path)
}

async fn read_first(engine: &Engine, world: &World) -> Result<(), StorageError> {
    let name = &world.adoption.tier.files[0].name;
    let served = engine.reading().open_file(world.storage, name).await?;
    let ServedBytes::InFile { file, checked, .. } = served.bytes else {
        panic!("a data file is a file");
    };
    checked.ensure(0..100_000).await?;
    let mut read = vec![0; 100_000];
    file.read_exact_at(&mut read, 0).unwrap();
    let key = &world.adoption.tier.files[0].key;
    assert!(read == world.store.objects.lock().unwrap()[key][..100_000]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_is_noticed_and_made_again() {
    let world = uploaded().await;
    world.engine.tiering().evict(world.storage).await.unwrap();
    let (tier, sums) = (&world.adoption.tier, &world.adoption.sums);
    for name in [
        FileName::Tier(world.storage),
        FileName::TierSums(world.storage),
    ] {
        for loss in LOSSES {
            let (copy, engine, path) = damaged(&world, &name, loss).await;
            let refused = read_first(&engine, &world).await.unwrap_err();
            let code = refused.code();
            assert_eq!(
                code, "object_store_unavailable",
                "{name} {loss:?} {refused}"
            );
            let packet = engine.reading().read_packet(world.storage, 0).await;
            assert!(packet.is_err(), "a packet without its bytes");
            engine.tiering().loss().await;
            assert_eq!(engine.tiering().lost(), [world.storage]);
            assert!(engine.tiering().has_lost(world.storage));
            // Nothing is given up while there is something to find.
            engine.tiering().give_up_lost(world.storage);
            assert!(read_first(&engine, &world).await.is_err());

            engine
                .tiering()
                .restore(tier.clone(), sums.clone())
                .await
                .unwrap();
            assert_eq!(engine.tiering().lost(), []);
            assert!(path.exists());
            read_first(&engine, &world).await.unwrap();
            check_packets(&engine, world.storage, PACKETS).await;
            check_intact(&engine, world.storage, 2 * PACKETS).await;
            let info = engine.tiering().info(world.storage).unwrap().unwrap();
            assert!(info.file.is_evicted && info.file.is_own, "{info:?}");
            // Also after the next start.
            engine.shutdown().await.unwrap();
            let again = open(copy.path(), &world.store).await;
            read_first(&again, &world).await.unwrap();
            assert_eq!(again.tiering().lost(), []);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_seal_that_was_noted_is_believed() {
    let world = uploaded().await;
    world.engine.tiering().evict(world.storage).await.unwrap();
    let (tier, sums) = (&world.adoption.tier, &world.adoption.sums);
    let mut of_another = tier.clone();
    of_another.seal = "2".into();
    let mut changed = of_another.clone();
    changed.files[0].checksum ^= 1;
    let mut without = of_another.clone();
    without.files.remove(0);

    // The seal that was noted is known: no other one.
    let sums_name = FileName::TierSums(world.storage);
    let (_copy, engine, _) = damaged(&world, &sums_name, Loss::Flipped).await;
    assert!(read_first(&engine, &world).await.is_err());
    for wrong in [&of_another, &changed, &without] {
        let refused = engine.tiering().restore(wrong.clone(), sums.clone()).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_value");
    }
    let mut flipped = sums.to_vec();
    flipped[0] ^= 1;
    let refused = engine.tiering().restore(tier.clone(), flipped.into()).await;
    assert_eq!(refused.unwrap_err().code(), "damaged");
    assert!(read_first(&engine, &world).await.is_err());

    // It is not known: one of the same files, all of them.
    let (_copy, engine, _) = damaged(&world, &FileName::Tier(world.storage), Loss::Gone).await;
    for wrong in [&changed, &without] {
        let refused = engine.tiering().restore(wrong.clone(), sums.clone()).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_value");
        assert!(read_first(&engine, &world).await.is_err());
    }
    let restored = engine.tiering().restore(of_another, sums.clone()).await;
    restored.unwrap();
    check_packets(&engine, world.storage, PACKETS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_all_here_is_served_meanwhile() {
    let world = uploaded().await;
    for loss in LOSSES {
        let name = FileName::Tier(world.storage);
        let (_copy, engine, _) = damaged(&world, &name, loss).await;
        world.store.is_down.store(true, Ordering::SeqCst);
        check_packets(&engine, world.storage, PACKETS).await;
        check_intact(&engine, world.storage, 2 * PACKETS).await;
        world.store.is_down.store(false, Ordering::SeqCst);
        assert_eq!(engine.tiering().lost(), [world.storage]);
        if loss == Loss::Gone {
            // As after a crash before its seal was noted.
            engine.tiering().give_up_lost(world.storage);
            assert_eq!(engine.tiering().lost(), []);
            continue;
        }
        let (tier, sums) = (&world.adoption.tier, &world.adoption.sums);
        let restored = engine.tiering().restore(tier.clone(), sums.clone()).await;
        restored.unwrap();
        let info = engine.tiering().info(world.storage).unwrap().unwrap();
        assert!(!info.file.is_evicted, "{info:?}");
    }
}
