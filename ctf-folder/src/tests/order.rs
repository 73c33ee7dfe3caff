//! Streams whose time goes back: Babeltrace stops there; here, every event is given, and the step
//! back is reported.

use super::generated::{packet, stream, three, write};
use crate::{
    DetailsOptions, EventFormat, TraceFolder, WriteOptions, WriteSummary, write_details,
    write_events,
};
use std::path::Path;
use std::process::Command;

/// A trace and what is reported of it.
struct Case {
    streams: Vec<(&'static str, Vec<u8>)>,
    events: usize,
    /// The file, the offset of the packet, both times in nanoseconds after the origin of the clock,
    /// and how many steps back there are.
    steps: Option<(&'static str, u64, [u64; 2], u64)>,
}

fn cases() -> Vec<Case> {
    let inside = packet(0, 10, 19, &[(11, 1), (18, 2), (15, 3), (17, 4)]);
    let after = packet(1, 20, 29, &[(21, 5), (21, 6)]);
    let [early, late] = [
        packet(0, 10, 29, &[(11, 1), (28, 2)]),
        packet(1, 20, 39, &[(21, 3), (38, 4)]),
    ];
    let twice = packet(0, 10, 19, &[(15, 1), (14, 2), (16, 3), (11, 4)]);
    let case = |streams, events, steps| Case {
        streams,
        events,
        steps,
    };
    let two = vec![("s", stream(0, &three())), ("t", stream(1, &[twice]))];
    vec![
        case(vec![("s", stream(0, &three()))], 6, None),
        case(
            vec![("s", stream(0, &[inside, after]))],
            6,
            Some(("s", 0, [15, 18], 1)),
        ),
        case(
            vec![("s", stream(0, &[early, late]))],
            4,
            Some(("s", 64 + 20, [21, 28], 1)),
        ),
        case(two, 10, Some(("t", 0, [14, 15], 2))),
    ]
}

/// In every format: the text, and what was found.
fn read(folder: &Path) -> Vec<(String, WriteSummary)> {
    let traces = [TraceFolder::open(folder).unwrap()];
    let mut read = Vec::new();
    for format in [EventFormat::Text, EventFormat::Json] {
        let mut text = Vec::new();
        let how = WriteOptions {
            format,
            ..WriteOptions::default()
        };
        let written = write_events(&traces, how, &mut text).unwrap();
        read.push((String::from_utf8(text).unwrap(), written));
    }
    let mut text = Vec::new();
    let (options, how) = (DetailsOptions::default(), WriteOptions::default());
    let written = write_details(&traces, options, how, &mut text).unwrap();
    read.push((String::from_utf8(text).unwrap(), written));
    read
}

#[test]
fn every_event_is_given_and_the_steps_back_are_reported() {
    for case in cases() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "", &case.streams);
        let expected = case.steps.map(|(name, offset, [time, before], count)| {
            format!(
                "{}: packet at byte {offset}: time goes back: an event at 10000000{time} ns \
                 follows one at 10000000{before} ns (steps back in the stream: {count}); its \
                 events are given in their order there",
                folder.path().join(name).display()
            )
        });
        let expected: Vec<String> = expected.into_iter().collect();
        for (text, written) in read(folder.path()) {
            let found: Vec<String> = written.faults.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text}");
            // As a line, an object, and a message.
            let events = ["] (", "\"name\":\"e\"", "Event `e`"].map(|of| text.matches(of).count());
            assert_eq!(events.into_iter().max(), Some(case.events), "{text}");
        }
        match Command::new("babeltrace2").arg(folder.path()).output() {
            Ok(theirs) => assert_eq!(theirs.status.success(), expected.is_empty()),
            Err(error) => println!("skipped: babeltrace2: {error}"),
        }
    }
}

#[test]
fn a_step_back_has_a_sign() {
    let folder = tempfile::tempdir().unwrap();
    let events = [(11, 1), (18, 2), (15, 3), (17, 4)];
    write(
        folder.path(),
        "",
        &[("s", stream(0, &[packet(0, 10, 19, &events)]))],
    );
    let (text, written) = read(folder.path()).swap_remove(0);
    assert_eq!(written.events, 4);
    assert_eq!(
        text,
        "[00:00:01.000000011] (+?.?????????) e: { n = 1 }\n\
         [00:00:01.000000018] (+0.000000007) e: { n = 2 }\n\
         [00:00:01.000000015] (-0.000000003) e: { n = 3 }\n\
         [00:00:01.000000017] (+0.000000002) e: { n = 4 }\n"
    );
}
