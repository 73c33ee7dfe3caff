//! Field classes of every kind nest up to one limit, and so do the readers of their values. Tests
//! run on small stacks, as the threads of the server do.

use crate::{
    DecodeFault, ElementReader, EventReader, MetadataError, Plan, Procedure, Value, parse_metadata,
};

/// Levels around the containers of a case, and of the innermost field.
const OTHER_LEVELS: usize = 2;
const DEPTH_MAX: usize = 4_096 - OTHER_LEVELS;

/// Metadata with containers of one kind that nest `depth` levels.
type Nested = fn(depth: usize) -> String;

fn tsdl(field: &str) -> String {
    format!(
        "trace {{ major = 1; minor = 8; byte_order = le; }}; typealias integer {{ size = 8; }} := \
         u8; event {{ fields := struct {{ enum : u8 {{ l }} t; {field} }}; }};"
    )
}

fn ctf2(begin: &str, end: &str, depth: usize) -> String {
    let byte = r#"{"type": "fixed-length-unsigned-integer", "length": 8,
        "byte-order": "little-endian"}"#;
    let field = begin.repeat(depth) + byte + &end.repeat(depth);
    let payload = format!(
        r#"{{"type": "structure", "member-classes": [{{"name": "t", "field-class": {byte}}},
            {{"name": "a", "field-class": {field}}}]}}"#
    );
    let fragments = [
        r#"{"type": "preamble", "version": 2}"#.to_owned(),
        r#"{"type": "data-stream-class"}"#.to_owned(),
        format!(r#"{{"type": "event-record-class", "payload-field-class": {payload}}}"#),
    ];
    fragments.map(|text| format!("\u{1e}{text}\n")).concat()
}

const TSDL: [(&str, Nested); 3] = [
    ("structures", |depth| {
        tsdl(&("struct { ".repeat(depth) + "u8 a;" + &"} a;".repeat(depth)))
    }),
    ("arrays", |depth| {
        tsdl(&format!("u8 a{};", "[1]".repeat(depth)))
    }),
    ("variants", |depth| {
        let field = "variant <t> { ".repeat(depth) + "u8 l;" + &"} l;".repeat(depth);
        tsdl(&field)
    }),
];

const CTF2: [(&str, Nested); 4] = [
    ("structures", |depth| {
        let begin = r#"{"type": "structure", "member-classes": [{"name": "a", "field-class": "#;
        ctf2(begin, "}]}", depth)
    }),
    ("arrays", |depth| {
        let begin = r#"{"type": "static-length-array", "length": 1, "element-field-class": "#;
        ctf2(begin, "}", depth)
    }),
    ("optionals", |depth| {
        let begin = r#"{"type": "optional", "selector-field-ranges": [[0, 0]],
            "selector-field-location": {"origin": "event-record-payload", "path": ["t"]},
            "field-class": "#;
        ctf2(begin, "}", depth)
    }),
    ("variants", |depth| {
        let begin = r#"{"type": "variant", "selector-field-location":
            {"origin": "event-record-payload", "path": ["t"]},
            "options": [{"selector-field-ranges": [[0, 0]], "field-class": "#;
        ctf2(begin, "}]}", depth)
    }),
];

/// Reads an event record in every way; its values are 0 and 7, in `depth` containers.
fn check(text: &str, depth: usize) -> Result<(), MetadataError> {
    let procedure = Procedure::new(parse_metadata(text.as_bytes())?).unwrap();
    let data = &[0, 7];
    let plans = [
        Plan::everything(&procedure),
        Plan::new(&procedure, |field| field.path.first() != Some(&"t")),
    ];
    for plan in &plans {
        let mut reader = EventReader::new(plan, data);
        reader.next_packet().unwrap();
        let event = reader.next_event().unwrap().unwrap();
        let values: Vec<Value<'_>> = event.all_fields().map(|datum| datum.value).collect();
        assert!(values.contains(&Value::Unsigned(7)));
        // Of a packed array, the beginning and the end are also values.
        assert!(values.len() > 2 * depth, "{}", values.len());
    }
    let nothing = Plan::nothing(&procedure);
    let mut reader = EventReader::new(&nothing, data);
    reader.next_packet().unwrap();
    assert!(reader.next_event().unwrap().is_some());
    assert!(reader.next_event().unwrap().is_none());
    let mut reader = ElementReader::new(&procedure, data);
    let mut elements = 0;
    while reader.next_element().unwrap().is_some() {
        elements += 1;
    }
    assert!(elements > 2 * depth, "{elements}");
    Ok(())
}

#[test]
fn fields_of_every_kind_nest_up_to_the_limit() {
    for (name, nested) in TSDL.into_iter().chain(CTF2) {
        for depth in [1, 126, 127, 128, 129, 1_000, DEPTH_MAX] {
            check(&nested(depth), depth).unwrap_or_else(|error| panic!("{name} {depth}: {error}"));
        }
        let error = check(&nested(DEPTH_MAX + 1), 0).unwrap_err();
        let message = "field classes nest deeper than 4096 levels";
        assert_eq!(error.message(), message, "{name}");
        assert!(error.frames().len() <= 64, "{name}");
    }
}

#[test]
fn text_beyond_the_limit_is_refused_before_it_is_read() {
    for (name, nested) in TSDL {
        let error = check(&nested(100_000), 0).unwrap_err();
        assert!(
            error.message().contains("deeper than 4096"),
            "{name}: {error}"
        );
    }
    for (name, nested) in CTF2 {
        let error = check(&nested(100_000), 0).unwrap_err();
        assert!(
            error.message().contains("nest deeper than"),
            "{name}: {error}"
        );
    }
}

#[test]
fn names_of_types_nest_until_their_copies_are_too_many() {
    let nested = |depth: usize| {
        let names = (0..depth).map(|n| format!("typedef t{n} t{}[1];", n + 1));
        let names: String = names.collect();
        tsdl(&format!("typedef u8 t0; {names} t{depth} a;"))
    };
    for depth in [1, 127, 128, 129, 300] {
        check(&nested(depth), depth).unwrap_or_else(|error| panic!("{depth}: {error}"));
    }
    for depth in [4_095, 100_000] {
        let error = check(&nested(depth), 0).unwrap_err();
        assert!(error.message().ends_with(" field classes"), "{error}");
    }
}

#[test]
fn attributes_nest_less_deeply_because_they_are_kept() {
    let text = |depth: usize| {
        let values = "[".repeat(depth) + &"]".repeat(depth);
        let attributes = format!(r#""attributes": {{"a": {values}}}"#);
        ctf2("", "", 0).replace(r#""version": 2"#, &format!(r#""version": 2, {attributes}"#))
    };
    check(&text(399), 0).unwrap();
    for depth in [400, 3_000, 100_000] {
        let error = check(&text(depth), 0).unwrap_err();
        assert!(
            error.message().contains("nest deeper than"),
            "{depth}: {error}"
        );
    }
}

#[test]
fn elements_that_multiply_are_bounded_by_the_data() {
    let fault = |field: &str, data: &[u8]| {
        let procedure = Procedure::new(parse_metadata(tsdl(field).as_bytes()).unwrap()).unwrap();
        let of_plan = |plan: &Plan| {
            let mut reader = EventReader::new(plan, data);
            reader.next_packet().unwrap();
            reader.next_event().map(|_| ()).unwrap_err().fault
        };
        [Plan::everything(&procedure), Plan::nothing(&procedure)].map(|plan| of_plan(&plan))
    };
    let doubled = "[2]".repeat(2_000);
    let nothing = fault(&format!("struct {{}} a{doubled};"), &[0, 0]);
    assert_eq!(nothing, [DecodeFault::NoProgress; 2]);
    let bytes = fault(&format!("u8 a{doubled};"), &[0; 1_000]);
    assert!(
        bytes
            .iter()
            .all(|fault| matches!(fault, DecodeFault::EndOfData { .. })),
        "{bytes:?}"
    );
    // One bit of data for each structure, and more structures than an event record may have.
    let bits = format!("struct {{ struct {{ integer {{ size = 1; }} b; }} c; }} a{doubled};");
    let [all, _] = fault(&bits, &[0; 1 << 18]);
    assert!(matches!(all, DecodeFault::TooManyValues { .. }), "{all:?}");
}
