//! OpenTelemetry spans as files: requests as the collector's file exporter writes them.

use std::borrow::Cow;

use trace_kinds::DamagedBytes;
use trace_kinds::otlp::{is_json, to_json_line, to_protobuf};

use super::SpanForm;
use super::packet::{ExportStream, PacketSource, read};
use super::report::{ExportedFile, Fidelity};
use super::target::AgentFolder;
use super::version::Missing;
use crate::ClientError;

/// The name of the file of a stream.
pub(super) fn file_name(stream: &ExportStream, form: SpanForm) -> String {
    let ending = match form {
        SpanForm::JsonLines => "jsonl",
        SpanForm::Protobuf => "pb",
    };
    format!("{}.{ending}", stream.stream)
}

/// Writes the requests of a stream. Gaps between sequences are no fault: a recording takes the
/// spans that it accepts.
pub(super) fn export(
    source: &dyn PacketSource,
    stream: &ExportStream,
    folder: &AgentFolder,
    name: &str,
    form: SpanForm,
) -> Result<ExportedFile, ClientError> {
    let mut output = folder.begin()?;
    let mut missing = Missing::default();
    let (mut packets, mut packet_bytes) = (0, 0);
    for packet in &stream.packets {
        let request = read(source, packet)?.and_then(|bytes| {
            packets += 1;
            packet_bytes += bytes.len() as u64;
            encoded(&bytes, form)
        });
        match request {
            Ok(request) => output.write(&request)?,
            Err(what) => missing.add(|| format!("packet {} is missing: {what}", packet.number)),
        }
    }
    let bytes = output.length;
    let (fidelity, note) = if missing.is_empty() {
        (Fidelity::Converted, None)
    } else {
        (Fidelity::Incomplete, Some(missing.to_string()))
    };
    Ok(ExportedFile {
        path: output.finish(name)?,
        origin: None,
        agent: stream.agent.to_string(),
        stream: stream.stream.to_string(),
        kind: stream.kind,
        packets,
        packet_bytes,
        bytes,
        fidelity,
        note,
    })
}

/// A request as it is written to the file.
pub(super) fn encoded(packet: &[u8], form: SpanForm) -> Result<Vec<u8>, String> {
    let failed = |error: trace_kinds::DecodeError| error.to_string();
    if let Some(damaged) = DamagedBytes::decode(packet) {
        return Err(damaged.reason());
    }
    match form {
        SpanForm::JsonLines => {
            let mut line = to_json_line(packet).map_err(failed)?;
            line.push(b'\n');
            Ok(line)
        }
        SpanForm::Protobuf => {
            let message = if is_json(packet) {
                Cow::Owned(to_protobuf(packet).map_err(failed)?)
            } else {
                Cow::Borrowed(packet)
            };
            let length = u32::try_from(message.len()).map_err(|error| error.to_string())?;
            Ok([&length.to_be_bytes(), &*message].concat())
        }
    }
}
