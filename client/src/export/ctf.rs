//! CTF traces as folders. The metadata is written last, so no reader takes the result of an
//! interrupted export for a trace.

use std::fs;
use std::io::ErrorKind;

use storage_format::AgentId;

use trace_kinds::io_trace::tsdl;

use super::content::{self, Written};
use super::packet::{ExportStream, PacketSource};
use super::report::{ExportReport, ExportedFile, Fidelity};
use super::target::{AgentFolder, METADATA, trace_file_name};
use super::version::{Missing, versions};
use crate::ClientError;

/// Writes the trace of an agent with its metadata.
pub(super) fn export_trace(
    source: &dyn PacketSource,
    agent: &AgentId,
    streams: &[ExportStream],
    folder: &AgentFolder,
    report: &mut ExportReport,
) -> Result<(), ClientError> {
    let Some(metadata) = source.metadata(agent)? else {
        let what = format!(
            "agent {agent} has no trace metadata, so its trace would be unreadable; export another \
             agent with --agent"
        );
        return Err(ClientError::input(what));
    };
    export_with(source, &metadata, streams, folder, report)
}

/// Writes the trace of a server's I/O, which has the same metadata everywhere.
pub(super) fn export_io_trace(
    source: &dyn PacketSource,
    streams: &[ExportStream],
    folder: &AgentFolder,
    report: &mut ExportReport,
) -> Result<(), ClientError> {
    export_with(source, tsdl().as_bytes(), streams, folder, report)
}

fn export_with(
    source: &dyn PacketSource,
    metadata: &[u8],
    streams: &[ExportStream],
    folder: &AgentFolder,
    report: &mut ExportReport,
) -> Result<(), ClientError> {
    let path = folder.path.join(METADATA);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(ClientError::file(&path, error));
        }
        _ => {}
    }
    for stream in streams {
        report.add(export_stream(source, stream, folder)?);
    }
    let mut output = folder.begin()?;
    output.write(metadata)?;
    output.finish(METADATA)?;
    report.traces.push(folder.path.clone());
    Ok(())
}

/// Writes the packets of a stream, of all versions of its file.
fn export_stream(
    source: &dyn PacketSource,
    stream: &ExportStream,
    folder: &AgentFolder,
) -> Result<ExportedFile, ClientError> {
    let versions = versions(stream);
    let mut output = folder.begin()?;
    let mut written = Written::default();
    let mut missing = Missing::default();
    for version in &versions {
        let before = written;
        (written, output) = content::write(source, stream, version, output, false)?;
        written.packets += before.packets;
        written.packet_bytes += before.packet_bytes;
        if !written.missing.is_empty() {
            missing.add(|| written.missing.to_string());
        }
    }
    let bytes = output.length;
    let is_exact = match versions.as_slice() {
        [only] => written.is_exact(only, &output),
        _ => false,
    };
    let (fidelity, note) = if !missing.is_empty() {
        (Fidelity::Incomplete, Some(missing.to_string()))
    } else if is_exact {
        (Fidelity::Exact, None)
    } else {
        (Fidelity::Unverified, None)
    };
    Ok(ExportedFile {
        path: output.finish(&trace_file_name(stream))?,
        origin: versions
            .first()
            .and_then(|version| version.file)
            .map(|file| file.path.clone()),
        agent: stream.agent.to_string(),
        stream: stream.stream.to_string(),
        kind: stream.kind,
        packets: written.packets,
        packet_bytes: written.packet_bytes,
        bytes,
        fidelity,
        note,
    })
}
