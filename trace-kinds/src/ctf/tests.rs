//! Events of small packets.

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
trace { major = 1; minor = 8; byte_order = le; };
env { vpid = 77; };
clock { name = c; freq = 1000000000; offset_s = 1; };
stream {
  packet.context := struct { u8 cpu; };
  event.header := struct { u8 id; integer { size = 64; map = clock.c.value; } timestamp; };
  event.context := struct { u8 _vtid; };
};
event { name = "first"; id = 0; loglevel = 4; fields := struct {
  u8 count; u8 list[count]; struct { string text; } inner;
  enum : u8 { ON = 1, OFF = 2 } state; } ; };
event { name = "second"; id = 1; fields := struct { integer { size = 8; signed = true; } count; }; };
"#;

/// One packet: the context, a first event at 5 ns, a second one at 9 ns.
fn packet() -> Vec<u8> {
    let mut bytes = vec![3];
    bytes.extend_from_slice(&[0, 5, 0, 0, 0, 0, 0, 0, 0, 42, 2, 7, 8]);
    bytes.extend_from_slice(b"hi\0\x02");
    bytes.extend_from_slice(&[1, 9, 0, 0, 0, 0, 0, 0, 0, 43, 0xfe]);
    bytes
}

fn procedure() -> ctf::Procedure {
    ctf::Procedure::new(ctf::parse_metadata(METADATA.as_bytes()).unwrap()).unwrap()
}

fn text_of(value: query_language::Value<'_>) -> String {
    match value {
        query_language::Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn events_have_the_documented_fields() {
    use crate::Decoder;
    let names = [
        "name",
        "cat",
        "ts",
        "pid",
        "tid",
        "count",
        "args.list",
        "args.inner.text",
    ];
    let names = names
        .iter()
        .chain(&["args.state", "ctx.vtid", "packet.cpu", "args.nothing"]);
    let mut table = query_language::FieldTable::new();
    let ids: Vec<_> = names
        .map(|name| table.insert(&query_language::FieldPath::new(name)))
        .collect();
    let mut rows = Vec::new();
    let mut decoder = super::CtfDecoder::new(&procedure(), &table);
    let decoded = decoder
        .decode(&packet(), &mut |event| {
            let values = ids
                .iter()
                .map(|id| event.field(*id).map_or("-".to_owned(), text_of));
            rows.push(values.collect::<Vec<_>>().join(" "));
            let mut fields = Vec::new();
            event.each_field(&mut |path, value| fields.push(format!("{path}={}", text_of(value))));
            rows.push(fields.join(" "));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(decoded.events, 2);
    expect_test::expect![[r#"
        first warning Int(1000000005) Int(77) Uint(42) Uint(2) [7, 8] hi OFF Uint(42) Uint(3) -
        name=first cat=warning ts=Int(1000000005) packet.cpu=Uint(3) ctx.vtid=Uint(42) args.count=Uint(2) args.list=[7, 8] args.inner.text=hi args.state=OFF
        second - Int(1000000009) Int(77) Uint(43) Int(-2) - - - Uint(43) Uint(3) -
        name=second ts=Int(1000000009) packet.cpu=Uint(3) ctx.vtid=Uint(43) args.count=Int(-2)"#]]
    .assert_eq(&rows.join("\n"));
}

/// Paths are stored only up to a limit: here they would take 2 GB.
#[test]
fn long_paths_of_many_fields_are_built_when_needed() {
    let long = "n".repeat(100_000);
    let members: String = (0..20_000).map(|index| format!("u8 m{index};")).collect();
    let metadata = format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; trace {{ major = 1; minor = 8; \
         byte_order = le; }}; event {{ name = e; fields := struct {{ struct {{ {members} }} {long}; \
         u8 last; }}; }};"
    );
    let procedure = ctf::Procedure::new(ctf::parse_metadata(metadata.as_bytes()).unwrap());
    let procedure = procedure.unwrap();
    let paths = super::paths::Paths::new(&procedure);
    let count = procedure.nodes().len();
    let path = |index: usize| paths.path(ctf::NodeId(u32::try_from(index).unwrap()));
    assert_eq!(path(count - 1), "args.last");
    assert_eq!(path(count - 2), format!("args.{long}.m19999"));
    assert_eq!(path(2), format!("args.{long}.m0"));
    assert!(paths.stored_bytes() <= 16 << 20);
    let short: Vec<_> = paths.short(20).map(|(_, path)| path.into_owned()).collect();
    assert_eq!(short, ["args", "args.last"]);
}
