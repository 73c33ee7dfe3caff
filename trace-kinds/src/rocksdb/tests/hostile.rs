//! Arbitrary bytes never cause a panic.

use super::*;

/// Reads `bytes` in every way; nothing may panic or loop forever.
fn read_all_ways(bytes: &[u8]) {
    let _text = io_text(bytes);
    let _csv = block_csv(bytes);
    for kind in [TraceKind::Io, TraceKind::BlockCache] {
        let mut decoder = RocksdbDecoder::new(kind, &FieldTable::new());
        let _end = decoder.decode(bytes, &mut |event| {
            event.each_field(&mut |_, _| {});
            ControlFlow::Continue(())
        });
    }
    let mut cutter = Cutter::new(300);
    for piece in bytes.chunks(97) {
        if cutter.push(piece).is_err() {
            break;
        }
    }
    let packets: Vec<_> = std::iter::from_fn(|| cutter.flush()).collect();
    let joined = join(packets.iter().map(|packet| &packet.bytes[..])).unwrap_or_default();
    assert!(joined.len() <= bytes.len());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_all_ways(&bytes);
    }

    #[test]
    fn mutated_traces_never_panic(
        which in 0..2usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = small_traces()[which].clone();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        read_all_ways(&bytes);
    }
}
