//! CTF packets: the input is the data of one stream, and the trace class has every shape of field.
//! The element reader and the event reader must agree on how far the data is valid and what is
//! wrong with it.
#![no_main]

use std::sync::LazyLock;

use ctf::{Element, ElementReader, EventReader, Plan, Procedure};
use libfuzzer_sys::fuzz_target;

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 16; align = 8; byte_order = be; } := u16be;
typealias integer { size = 32; align = 32; } := u32;
typealias integer { size = 3; align = 1; signed = true; } := i3;
typealias integer { size = 11; align = 1; byte_order = be; } := u11be;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { u8 stream_id; }; };
clock { name = c; };
typealias integer { size = 16; align = 8; map = clock.c.value; } := stamp;
stream { id = 1;
    packet.context := struct { stamp timestamp_begin; u16be packet_size; u16be content_size; };
    event.header := struct { enum : u8 { a = 0 ... 250, b = 251 ... 255 } id; stamp timestamp;
        variant <id> { struct { u8 x; } a; struct { u32 y; } b; } v; };
    event.context := struct { u8 vpid; integer { size = 8; encoding = UTF8; } name[4]; }; };
event { stream_id = 1; id = 0; name = bits; fields := struct { i3 a; i3 many[5]; u8 end; }; };
event { stream_id = 1; id = 1; name = texts; fields := struct { string one; u8 len;
    integer { size = 8; encoding = UTF8; } two[len]; u16be after; }; };
event { stream_id = 1; id = 2; name = nested; fields := struct { u8 len;
    struct { u8 n; u16be all[n]; struct { string s; } inner; } each[len]; u32 aligned; }; };
event { stream_id = 1; id = 3; name = mixed; fields := struct { u11be a; i3 b; u8 c; u11be d; }; };
event { stream_id = 1; id = 4; name = floats; fields := struct {
    floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f;
    floating_point { exp_dig = 11; mant_dig = 53; align = 64; } d; u8 rows[2][3]; }; };
stream { id = 2; packet.context := struct { u8 packet_size; }; };
event { stream_id = 2; id = 0; name = odd; fields := struct { u11be list[3]; u8 t; u11be n; }; };
"#;

static PROCEDURE: LazyLock<Procedure> = LazyLock::new(|| {
    let class = ctf::parse_metadata(METADATA.as_bytes()).expect("the metadata is right");
    Procedure::new(class).expect("the trace class is small")
});

fuzz_target!(|data: &[u8]| {
    let plan = Plan::everything(&PROCEDURE);
    let mut elements = ElementReader::new(&PROCEDURE, data);
    let mut records = 0_u64;
    let fault = loop {
        match elements.next_element() {
            Ok(Some(Element::RecordEnd)) => records += 1,
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let mut events = EventReader::new(&plan, data);
    let mut read = 0_u64;
    let found = 'packets: loop {
        match events.next_packet() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        loop {
            match events.next_event() {
                Ok(Some(event)) => {
                    read += 1;
                    // Fields that are decoded lazily must be as safe to read.
                    event.all_fields().for_each(drop);
                }
                Ok(None) => break,
                Err(error) => break 'packets Some(error),
            }
        }
    };
    assert_eq!((records, fault), (read, found));
});
