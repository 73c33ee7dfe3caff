//! Records that share a shape but not the remainder.

use super::*;

/// Remainders of records of one shape, valid and broken.
const REMAINDERS: &[&str] = &[
    r#","dur":7,"ph":"X"}"#,
    r#","dur":7,"ph":"X","args":{}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192}}"#,
    r#","dur":7,"ph":1,"args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192}}"#,
    r#","dur":7,"ph":1.5,"args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192}}"#,
    r#","ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192}}"#,
    r#","dur":"7","ph":"X","args":{"fhash":"4660f84ce042691f","ret":"4096","count":"8192"}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691","ret":4096,"count":8192}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f0","ret":4096,"count":8192}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84\"e042691","ret":4096,"count":8192}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ä042691f","ret":4096,"count":8192}}"#,
    ",\"dur\":7,\"ph\":\"X\",\"args\":{\"fhash\":\"4660f84\u{1}042691f\",\"ret\":4096}}",
    r#","dur":7,"ph":"X","args":{"fhash":9509357668201227806,"ret":-1,"count":8192}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096.5,"count":8e3}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":null,"count":true}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":08192}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"","ret":0,"count":123456789012345678901234567890}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","count":8192,"ret":4096}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192,"level":2}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,}}"#,
    r#","dur":7,"ph":"X","args":{,"fhash":"4660f84ce042691f","ret":4096}}"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192"#,
    r#","dur":7,"ph":"X","args":{"fhash":"4660f84ce042691f","ret":4096,"count":8192}} "#,
    r#","dur":7,"ph":"X","args":{"a":{"b":1},"ret":4096}}"#,
    r#","dur":7,"ph":"X","args":{"an argument with a name of some length":1,"ret":2}}"#,
    r#","dur":7,"ph":"X","args":{"an argument with a name of some Length":1,"ret":2}}"#,
];

fn line(remainder: &str) -> String {
    format!(r#"{{"id":1,"name":"read","cat":"POSIX","pid":1,"tid":2,"ts":10{remainder}"#)
}

#[test]
fn a_record_decodes_alike_whatever_preceded_it() {
    let table = table(&FIELDS);
    let alone = |remainder: &&str| {
        let (decoded, transcript) = walk(&table, Names::default(), line(remainder).as_bytes());
        (decoded, transcript.text)
    };
    let expected: Vec<(Decoded, String)> = REMAINDERS.iter().map(alone).collect();
    let broken = expected.iter().filter(|(decoded, _)| decoded.broken == 1);
    assert_eq!(broken.count(), 5);
    for (first, (_, first_text)) in REMAINDERS.iter().zip(&expected) {
        for (second, (_, second_text)) in REMAINDERS.iter().zip(&expected) {
            // Padding, so that no word of the last record extends past the end of the text.
            let text = format!("{0}\n{1}\n{0}\n{1}\n{2:200}", line(first), line(second), "");
            let (decoded, transcript) = walk(&table, Names::default(), text.as_bytes());
            let texts = [first_text, second_text, first_text, second_text];
            assert_eq!(
                transcript.text,
                texts.map(String::as_str).concat(),
                "{text}"
            );
            assert_eq!(decoded.events + decoded.broken, 4, "{text}");
        }
    }
}
