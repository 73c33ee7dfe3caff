use super::*;

fn u8_kind() -> FieldKind {
    FieldKind::Unsigned(
        FixedBits::new(8, 8, ByteOrder::Little),
        IntegerClass::default(),
    )
}

fn structure(members: Vec<Member>) -> FieldKind {
    FieldKind::Struct(StructClass {
        members: members.into(),
        min_alignment: 1,
    })
}

/// A payload `{ len: u8, text: string[location] }` in one stream class.
fn with_text_at(location: Location) -> Result<TraceClass, BuildError> {
    let mut builder = TraceClassBuilder::new(MajorVersion::V2);
    let len = builder.add_field(u8_kind(), 10)?;
    let class = StringClass {
        length: Length::Dynamic(Dependency::new(location)),
        encoding: Encoding::Utf8,
    };
    let text = builder.add_field(FieldKind::String(class), 20)?;
    let members = vec![Member::new("len", len), Member::new("text", text)];
    let payload = builder.add_field(structure(members), 30)?;
    assert!(builder.add_stream(StreamClass::new(0)));
    let mut event = EventClass::new(0, Some("e"));
    event.payload = Some(payload);
    assert!(builder.add_event(0, event, 40));
    builder.build()
}

#[test]
fn a_length_is_saved_in_the_slot_of_its_dependency() {
    for location in [
        Location::relative(["len"]),
        Location::absolute(Scope::EventPayload, ["len"]),
    ] {
        let trace = with_text_at(location).unwrap();
        assert_eq!(trace.slot_count(), 1);
        assert_eq!(*trace.field(FieldId(0)).slots, [SlotId(0)]);
        let FieldKind::String(class) = &trace.field(FieldId(1)).kind else {
            panic!()
        };
        let Length::Dynamic(dependency) = &class.length else {
            panic!()
        };
        assert_eq!(dependency.slot, SlotId(0));
        assert_eq!(
            dependency.location,
            Location::absolute(Scope::EventPayload, ["len"])
        );
    }
}

#[test]
fn invalid_locations_are_rejected_at_their_origin() {
    let check = |location: Location, origin: u32| {
        let error = with_text_at(location).unwrap_err();
        assert_eq!(error.frames[0].subject, Subject::Origin(origin), "{error}");
    };
    check(Location::relative(["nothing"]), 30);
    check(Location::relative(["len", "deeper"]), 10);
    check(Location::relative(["text"]), 20);
    check(Location::absolute(Scope::PacketHeader, ["len"]), 20);
    check(
        Location {
            scope: None,
            path: vec![PathStep::Parent],
        },
        20,
    );
}

#[test]
fn event_classes_are_found_by_small_and_large_ids() {
    let mut stream = StreamClass::new(0);
    let ids = [7, 0, u64::MAX, 1 << 40];
    stream.set_events(ids.iter().map(|id| EventClass::new(*id, None)).collect());
    for id in ids {
        let index = stream.find_event_class(id).unwrap();
        assert_eq!(stream.event_class(index).id, id);
    }
    assert_eq!(stream.find_event_class(1), None);
    assert_eq!(stream.find_event_class(8), None);
}

#[test]
fn the_alignment_of_a_container_is_the_maximum_of_its_parts() {
    let mut builder = TraceClassBuilder::new(MajorVersion::V2);
    let bits = FixedBits::new(32, 64, ByteOrder::Big);
    let int = builder
        .add_field(FieldKind::Signed(bits, IntegerClass::default()), 0)
        .unwrap();
    let outer = builder
        .add_field(structure(vec![Member::new("a", int)]), 0)
        .unwrap();
    assert_eq!(builder.field(outer).alignment, 64);
    let copy = builder.copy_field(outer).unwrap();
    assert_ne!(builder.field(copy).members()[0].class, int);
}

#[test]
fn flags_are_active_when_one_of_their_bits_is_set() {
    let flag = |name: &str, lower, upper| Flag {
        name: name.into(),
        bits: RangeSet::new(vec![IntRange { lower, upper }]),
    };
    let flags = [flag("low", 0, 1), flag("high", 63, 63), flag("all", 0, 63)].into();
    let class = BitMapClass {
        bits: FixedBits::new(64, 8, ByteOrder::Little),
        flags,
    };
    let active = |value| class.active_flags(value).collect::<Vec<_>>();
    assert_eq!(active(0), Vec::<&str>::new());
    assert_eq!(active(2), ["low", "all"]);
    assert_eq!(active(1 << 63), ["high", "all"]);
}
