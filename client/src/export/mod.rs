//! Exports a storage as the files that were pushed into it, byte for byte.
//!
//! ```text
//! FOLDER/AGENT/metadata        of a CTF trace, as the agent sent it
//! FOLDER/AGENT/STREAM          its packets, one after another
//! FOLDER/AGENT/STREAM          packets of the trace of a server's I/O, beside their metadata; in
//!                              FOLDER/AGENT+io-trace if the agent has another CTF trace, too
//! FOLDER/AGENT/NAME            any other file, under its name
//! FOLDER/AGENT+files/NAME      the same, if the agent has a CTF trace, too
//! FOLDER/AGENT/STREAM.jsonl    spans that programs sent, one request a line; or STREAM.pb
//! FOLDER/AGENT+derived/NAME    streams that recordings derived from the agent's others
//! ```
//!
//! The storage is on a server, or in a folder that `mount` or `download` wrote. Every file is
//! compared with the length and checksum that its producer reported; what is missing or different
//! is part of the report.

mod content;
mod ctf;
mod folder_source;
mod otlp;
mod packet;
mod provenance_files;
mod report;
mod server_source;
mod target;
mod version;

use std::collections::BTreeMap;
use std::path::Path;

use storage_format::{AgentId, Kind, StreamNames};

use crate::ClientError;
use ctf::{export_io_trace, export_trace};
use packet::ExportStream;
use target::AgentFolder;
use version::Version;

pub use folder_source::FolderSource;
pub use packet::PacketSource;
pub use report::{ExportReport, ExportedFile, Fidelity, LeftOut};
pub use server_source::ServerSource;

/// What to export, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Only this agent.
    pub agent: Option<String>,
    /// Only streams with this name.
    pub stream: Option<String>,
    /// Only CTF traces.
    pub ctf_only: bool,
    /// Also derived streams. A stream that is named is exported in any case.
    pub derived: bool,
    /// The form of OpenTelemetry spans; `None` for the files that were pushed, and JSON lines for
    /// all others.
    pub spans: Option<SpanForm>,
    /// Replace existing files.
    pub force: bool,
}

/// How OpenTelemetry spans are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpanForm {
    /// One request in JSON a line.
    #[default]
    JsonLines,
    /// Requests in protobuf, each after its length as four bytes, the most significant first.
    Protobuf,
}

/// Writes the streams of a finalized storage into `folder`. Writes nothing if none matches.
///
/// # Errors
/// If an agent with CTF packets has no metadata, a file exists already, or the source or the disk
/// fails. Missing and damaged packets are no error but part of the report.
pub fn export(
    source: &dyn PacketSource,
    folder: &Path,
    options: &ExportOptions,
) -> Result<ExportReport, ClientError> {
    let mut report = ExportReport::default();
    // Those of an agent, and those that were derived from them.
    let mut agents: BTreeMap<(AgentId, bool), Agent> = BTreeMap::new();
    for (stream, is_derived) in selected(source.streams(options)?, options, &mut report) {
        let key = (stream.agent.clone(), is_derived);
        let agent = agents.entry(key).or_default();
        match stream.kind {
            Kind::Ctf => agent.trace.push(stream),
            Kind::IoTrace => agent.io_trace.push(stream),
            Kind::Otlp if options.spans.is_some() || !stream.is_of_file() => {
                agent.spans.push(stream);
            }
            _ => agent.files.push(stream),
        }
    }
    // Nothing is written if anything is in the way.
    let mut planned = Vec::new();
    for ((id, is_derived), agent) in &agents {
        planned.push(agent.plan(folder, (id, *is_derived), options)?);
    }
    for (((id, _), agent), plan) in agents.iter().zip(planned) {
        agent.export(source, id, plan, options, &mut report)?;
    }
    Ok(report)
}

/// The streams that are exported, and whether they are derived from others; those that are not
/// exported are added to the report.
fn selected(
    streams: Vec<ExportStream>,
    options: &ExportOptions,
    report: &mut ExportReport,
) -> Vec<(ExportStream, bool)> {
    let mut names = StreamNames::default();
    for ExportStream { agent, stream, .. } in &streams {
        names.add(agent, stream);
    }
    let takes_derived = options.derived || options.stream.is_some();
    let is_wanted = |stream: &ExportStream, is_derived: bool, report: &mut ExportReport| {
        if is_derived && !takes_derived {
            report.derived_streams += 1;
            return false;
        }
        let is_left_out = match stream.kind {
            Kind::Ctf | Kind::IoTrace => false,
            _ => options.ctf_only,
        };
        if is_left_out {
            report.leave_out(stream);
        }
        !is_left_out
    };
    let streams = streams.into_iter().map(|stream| {
        let is_derived = names.has_source_of(stream.kind, &stream.agent, &stream.stream);
        (stream, is_derived)
    });
    streams
        .filter(|(stream, is_derived)| is_wanted(stream, *is_derived, report))
        .collect()
}

/// The streams of an agent.
#[derive(Debug, Default)]
struct Agent {
    trace: Vec<ExportStream>,
    io_trace: Vec<ExportStream>,
    spans: Vec<ExportStream>,
    files: Vec<ExportStream>,
}

/// Where the streams of an agent are written.
struct Plan<'a> {
    trace: Option<AgentFolder>,
    io_trace: Option<AgentFolder>,
    files: AgentFolder,
    /// Names of the files of spans.
    spans: Vec<String>,
    /// The files of other streams, with their names.
    versions: Vec<(&'a ExportStream, Version<'a>, String)>,
}

impl Agent {
    /// Chooses the names, and checks that nothing is in the way.
    fn plan(
        &self,
        folder: &Path,
        (id, is_derived): (&AgentId, bool),
        options: &ExportOptions,
    ) -> Result<Plan<'_>, ClientError> {
        let trace = (!self.trace.is_empty()).then(|| AgentFolder::of_trace(folder, id));
        let io_trace = (!self.io_trace.is_empty()).then(|| match trace {
            Some(_) => AgentFolder::of_io_trace(folder, id),
            None => AgentFolder::of_trace(folder, id),
        });
        let mut files = match trace.as_ref().or(io_trace.as_ref()) {
            _ if is_derived => AgentFolder::of_derived(folder, id),
            Some(_) => AgentFolder::beside_trace(folder, id),
            None => AgentFolder::of_trace(folder, id),
        };
        let form = options.spans.unwrap_or_default();
        let spans = self.spans.iter();
        let spans = spans.map(|stream| files.reserve(&otlp::file_name(stream, form)));
        let spans: Vec<String> = spans.collect();
        let versions = self.files.iter().flat_map(|stream| {
            let versions = version::versions(stream).into_iter();
            versions.map(move |version| (stream, version))
        });
        let versions = target::named(versions.collect(), &mut files);
        for (folder, streams) in [(&trace, &self.trace), (&io_trace, &self.io_trace)] {
            if let Some(folder) = folder {
                folder.check_trace(streams, options.force)?;
            }
        }
        let names = spans.iter().chain(versions.iter().map(|(.., name)| name));
        for name in names {
            files.check(name, options.force)?;
        }
        Ok(Plan {
            trace,
            io_trace,
            files,
            spans,
            versions,
        })
    }

    fn export(
        &self,
        source: &dyn PacketSource,
        id: &AgentId,
        mut plan: Plan<'_>,
        options: &ExportOptions,
        report: &mut ExportReport,
    ) -> Result<(), ClientError> {
        if let Some(folder) = &plan.trace {
            export_trace(source, id, &self.trace, folder, report)?;
        }
        if let Some(folder) = &plan.io_trace {
            export_io_trace(source, &self.io_trace, folder, report)?;
        }
        for (stream, name) in self.spans.iter().zip(&plan.spans) {
            let form = options.spans.unwrap_or_default();
            let exported = otlp::export(source, stream, &plan.files, name, form)?;
            report.add(exported);
        }
        for (stream, version, name) in &plan.versions {
            let exported =
                content::export(source, stream, version, &mut plan.files, name, options)?;
            report.add(exported);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
