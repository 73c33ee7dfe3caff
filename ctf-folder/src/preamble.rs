//! What a packet says about itself before its first event.

use ctf::class::StreamClassIndex;
use ctf::{DecodeError, Element, ElementReader, PacketInfo, Procedure};

/// Facts of a packet, from its header and context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFacts {
    /// Class of its stream.
    pub class: Option<StreamClassIndex>,
    /// Id of its stream in the class.
    pub stream: Option<u64>,
    /// Cycles of the default clock at its beginning, when its context has a timestamp.
    pub begin_clock: Option<u64>,
    /// Lengths in bits, counters, and the clock at its end.
    pub info: PacketInfo,
}

/// Reads the header and the context of the packet at the beginning of `data`.
///
/// # Errors
/// When they cannot be decoded.
pub fn packet_facts(procedure: &Procedure, data: &[u8]) -> Result<PacketFacts, DecodeError> {
    let mut reader = ElementReader::new(procedure, data);
    let mut facts = PacketFacts::default();
    while let Some(&element) = reader.next_element()? {
        match element {
            Element::StreamInfo(info) => {
                let trace = procedure.trace_class();
                facts.class = info
                    .class
                    .and_then(|class| trace.find_stream_class(class.id));
                facts.stream = info.id;
            }
            Element::ClockValue(cycles) => facts.begin_clock = Some(cycles),
            Element::PacketInfo => facts.info = *reader.packet_info(),
            Element::RecordBegin | Element::ContentEnd | Element::PacketEnd => break,
            _ => {}
        }
    }
    Ok(facts)
}
