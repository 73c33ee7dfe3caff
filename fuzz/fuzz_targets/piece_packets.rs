//! Packets that are pieces of a gzip member, as an agent may send them: of any bytes behind the
//! magic.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use query_language::{FieldPath, FieldTable};
use trace_kinds::Decoder;
use trace_kinds::chrome::ChromeDecoder;
use trace_kinds::dft::{Names, PacketDecoder, TimeUnit};
use trace_kinds::gzip::{Inflater, PIECE_TEXT_BYTES_MAX, PiecePacket, is_piece};

const START: &[u8] = b"\x8dGZPIECE\x01";

fuzz_target!(|input: &[u8]| {
    let packet = [START, input].concat();
    assert!(is_piece(&packet));
    let piece = PiecePacket::decode(&packet);
    if let Ok(piece) = &piece {
        assert!(piece.text_bytes() <= 2 * PIECE_TEXT_BYTES_MAX as u64);
        assert!(piece.own_bytes().len() <= packet.len());
        assert_eq!(PiecePacket::decode(&piece.encode()).as_ref(), Ok(piece));
    }
    let text = piece.and_then(|piece| piece.text(&mut Inflater::default()));
    let mut table = FieldTable::new();
    table.insert(&FieldPath::new("name"));
    let mut lines = PacketDecoder::new(&table, Names::default(), TimeUnit::default());
    let mut events = ChromeDecoder::new(&table);
    let decoders: [&mut dyn Decoder; 2] = [&mut lines, &mut events];
    for decoder in decoders {
        let decoded = decoder.decode(&packet, &mut |_| ControlFlow::Continue(()));
        assert!(text.is_ok() || decoded.is_err());
    }
});
