//! Requests that wrk sends.

use std::path::{Path, PathBuf};

use super::Party;
use crate::failure::{Failure, Outcome};
use crate::process::{command, cpu_of, output};

/// One random range of 64 KiB per request, at a multiple of 4 KiB.
const SINGLE_SCRIPT: &str = r#"
local N = tonumber(os.getenv("FILE_BYTES"))
init = function(args) math.randomseed(12345) end
request = function()
  local s = math.random(0, math.floor((N - 65536) / 4096)) * 4096
  return wrk.format("GET", nil, { ["Range"] = string.format("bytes=%d-%d", s, s + 65535) })
end
"#;

/// 16 disjoint ascending ranges of 4 KiB per request, one in each sixteenth of the file.
const MULTI_SCRIPT: &str = r#"
local N = tonumber(os.getenv("FILE_BYTES"))
local S = math.floor(N / 16 / 4096)
init = function(args) math.randomseed(54321) end
request = function()
  local t = {}
  for i = 0, 15 do
    local s = (i * S + math.random(0, S - 1)) * 4096
    t[#t + 1] = string.format("%d-%d", s, s + 4095)
  end
  return wrk.format("GET", nil, { ["Range"] = "bytes=" .. table.concat(t, ",") })
end
"#;

/// Packets without a place in a sequence: the path of nginx ignores the headers.
const POST_SCRIPT: &str = r#"
local sequence = 0
local body = string.rep("x", 65536)
request = function()
  sequence = sequence + 1
  return wrk.format("POST", nil, {
    ["Content-Type"] = "application/octet-stream",
    ["Tracehold-Epoch"] = "1",
    ["Tracehold-Sequence"] = tostring(sequence),
  }, body)
end
"#;

/// What one run of a load gives.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Measured {
    /// Requests per second.
    pub(in crate::bench) rate: f64,
    /// CPU µs of the server per request.
    pub(in crate::bench) cpu: f64,
    /// Milliseconds within which 99 % of the responses came.
    pub(in crate::bench) p99: f64,
}

/// Range requests sent by wrk.
pub(in crate::bench) struct RangeLoad {
    script: PathBuf,
    length: u64,
    seconds: u32,
    connections: u32,
}

impl RangeLoad {
    fn new(
        folder: &Path,
        (name, script): (&str, &str),
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        let path = folder.join(name);
        std::fs::write(&path, script).map_err(|source| Failure::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            script: path,
            length,
            seconds,
            connections,
        })
    }

    /// Single ranges of 64 KiB of a file of `length` bytes.
    pub(in crate::bench) fn single(
        folder: &Path,
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        Self::new(
            folder,
            ("single.lua", SINGLE_SCRIPT),
            length,
            seconds,
            connections,
        )
    }

    /// 16 ranges of 4 KiB a request of a file of `length` bytes.
    pub(in crate::bench) fn multiple(
        folder: &Path,
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        Self::new(
            folder,
            ("multiple.lua", MULTI_SCRIPT),
            length,
            seconds,
            connections,
        )
    }

    /// Packets of 64 KiB, each larger than the last in its sequence.
    pub(super) fn posts(folder: &Path, seconds: u32, connections: u32) -> Outcome<Self> {
        Self::new(folder, ("post.lua", POST_SCRIPT), 0, seconds, connections)
    }

    pub(in crate::bench) fn measure(&self, party: &Party) -> Outcome<Measured> {
        let cpu_before = cpu_of(party.pid)?;
        let mut wrk = command("wrk", &["--threads", "1", "--latency"]);
        wrk.args([format!("--connections={}", self.connections)])
            .args([format!("--duration={}s", self.seconds)])
            .arg("--script")
            .arg(&self.script)
            .arg(&party.url)
            .env("FILE_BYTES", self.length.to_string());
        let answer = output(&mut wrk)?;
        let cpu = cpu_of(party.pid)?.saturating_sub(cpu_before);
        let malformed = |why: &str| Failure::Answer {
            command: "wrk".to_owned(),
            why: format!("{why} in {answer}"),
        };
        if answer.contains("Non-2xx") || answer.contains("Socket errors") {
            return Err(malformed("failed requests"));
        }
        let rate: f64 = field(&answer, "Requests/sec:").ok_or_else(|| malformed("no rate"))?;
        let count = rate * f64::from(self.seconds);
        let cpu = cpu.as_secs_f64() * 1e6 / count;
        let p99 = field::<String>(&answer, "99%").and_then(|text| milliseconds(&text));
        let p99 = p99.ok_or_else(|| malformed("no p99"))?;
        eprintln!("  {rate:.0} requests/s, {cpu:.1} CPU µs a request, p99 {p99:.2} ms");
        Ok(Measured { rate, cpu, p99 })
    }
}

/// The word after a label at the beginning of a line.
fn field<T: std::str::FromStr>(answer: &str, label: &str) -> Option<T> {
    let rest = answer
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A duration as wrk writes it.
fn milliseconds(text: &str) -> Option<f64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    let of_unit = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(number * of_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_parsed() {
        let answer = "  Latency Distribution\n     99%    1.30ms\nRequests/sec:  20662.41\n";
        assert_eq!(field(answer, "Requests/sec:"), Some(20662.41));
        assert_eq!(field(answer, "99%"), Some("1.30ms".to_owned()));
        assert_eq!(field::<f64>(answer, "Socket errors:"), None);
        for (text, wanted) in [
            ("1.30ms", Some(1.3)),
            ("250.00us", Some(0.25)),
            ("2.00s", Some(2000.0)),
            ("2.00m", None),
            ("ms", None),
        ] {
            assert_eq!(milliseconds(text), wanted, "{text}");
        }
    }
}
