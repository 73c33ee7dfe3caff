#!/usr/bin/env python3
"""Bytes of disk, memory and seconds of processor that a million events need (docs/capacity.md).

    measure-capacity.py PROGRAMS [--events N] [--kind NAME=PATH]...

PROGRAMS is the folder of `tracehold` and `traceholdd`. Of each kind a server of its own gets the events
in one push, finalizes them and makes its indexes. DFTracer, Chrome and
OpenTelemetry events are made here; other kinds need a trace of yours: --kind rocksdb=io.trace.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import urllib.request

NAMES = ["read", "write", "open64", "close", "lseek64", "stat", "fsync", "mmap"]


def dftracer(number, file):
    """POSIX calls of four threads, as DFTracer writes them."""
    draw = random.Random(7)
    file.write("[\n")
    for at in range(number):
        event = {
            "id": at, "name": draw.choice(NAMES), "cat": "POSIX", "pid": 4711, "tid": 4711 + at % 4,
            "ts": 1_700_000_000_000_000 + at * 3, "dur": draw.randrange(1, 4000), "ph": "X",
            "args": {"fname": f"/data/part-{draw.randrange(200)}.npz", "ret": draw.randrange(1 << 20), "offset": at * 4096},
        }
        file.write(json.dumps(event, separators=(",", ":")) + "\n")


def chrome(number, file):
    """Slices of functions on four threads."""
    draw = random.Random(7)
    file.write('{"traceEvents":[\n')
    for at in range(number):
        event = {
            "name": f"function_{draw.randrange(300)} (module.py:{draw.randrange(900)})", "cat": "FEE", "ph": "X",
            "pid": 1, "tid": 1 + at % 4, "ts": at * 2.5, "dur": draw.randrange(1, 90) / 10,
        }
        file.write(json.dumps(event, separators=(",", ":")) + (",\n" if at + 1 < number else "\n"))
    file.write("]}\n")


def otlp(number, file):
    """Requests of 500 spans with four attributes, one a line."""
    draw = random.Random(7)
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    for first in range(0, number, 500):
        spans = []
        for at in range(first, min(first + 500, number)):
            begin = 1_700_000_000_000_000_000 + at * 2000
            spans.append({
                "traceId": f"{at // 12 + 1:032x}", "spanId": f"{at + 1:016x}", "parentSpanId": f"{at:016x}" if at % 12 else "",
                "name": f"GET /item/{draw.randrange(40)}", "kind": 2,
                "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + draw.randrange(1000, 9_000_000)),
                "attributes": [
                    {"key": "http.request.method", "value": {"stringValue": "GET"}},
                    {"key": "http.response.status_code", "value": {"intValue": str(draw.choice([200, 200, 200, 404, 500]))}},
                    {"key": "server.address", "value": {"stringValue": f"node-{draw.randrange(16)}"}},
                    {"key": "db.rows", "value": {"intValue": str(draw.randrange(5000))}},
                ],
            })
        request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
        file.write(json.dumps(request, separators=(",", ":")) + "\n")


MADE = {"dft": (dftracer, "pfw"), "chrome": (chrome, "json"), "otlp": (otlp, "jsonl")}


class Server:
    def __init__(self, programs, folder):
        self.tracehold = programs / "tracehold"
        self.log = open(folder / "log", "w+")
        settings = folder / "settings.toml"
        settings.write_text('[otlp]\ngrpc_listen = "off"\nhttp_listen = "off"\n')
        command = [programs / "traceholdd", "--config", settings, "--listen", "127.0.0.1:0", "--data-dir", folder / "data"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.folder = folder / "data"
        self.url = None
        while self.url is None:
            time.sleep(0.05)
            for line in (folder / "log").read_text().splitlines():
                if "accepting requests" in line:
                    self.url = "http://" + line.split("address=")[1].split()[0]
            if self.process.poll() is not None:
                raise SystemExit((folder / "log").read_text())

    def run(self, *words):
        command = [self.tracehold, *map(str, words), "--server", self.url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def seconds(self):
        """Seconds of processor that the server has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


def length(path):
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def disk(folder):
    """Bytes on the disk of data and what is derived from them."""
    sizes = {"data": 0, "derived": 0}
    for path in folder.rglob("*"):
        if path.is_file():
            kind = "derived" if path.suffix in (".idx", ".pidx", ".cached") else "data"
            sizes[kind] += path.stat().st_blocks * 512
    return sizes


def settled(server, storage):
    """Waits until the chunk indexes are made."""
    files = f"{server.url}/api/v1/storages/{storage}/files"
    while True:
        with urllib.request.urlopen(files) as answer:
            if json.load(answer)["chunk_indexes"] != "in_progress":
                return
        time.sleep(0.2)


def measure(programs, kind, path):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(programs, pathlib.Path(folder))
        try:
            before = disk(server.folder)
            created = server.run("storage", "create", "--name", "all", "--json")
            began = time.monotonic()
            server.run("push", "--storage", "all", path)
            pushed = time.monotonic() - began
            server.run("storage", "finalize", "all")
            settled(server, json.loads(created)["id"])
            ingest = server.seconds()
            peak = server.peak()
            after = disk(server.folder)
            events = json.loads(server.run("query", "--storage", "all", "--count", "--json"))["count"]
            millions = events / 1e6
            return {
                "kind": kind, "events": events,
                "sent_mb": length(path) / 1e6 / millions,
                "data_mb": (after["data"] - before["data"]) / 1e6 / millions,
                "derived_mb": after["derived"] / 1e6 / millions,
                "peak_mib": peak / 2**20,
                "processor_s": ingest / millions,
                "push_s": pushed / millions,
            }
        finally:
            server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kind", action="append", default=[], metavar="NAME=PATH")
    asked = parser.parse_args()
    titles = ["kind", "events", "sent_mb", "data_mb", "derived_mb", "peak_mib", "processor_s", "push_s"]
    print("| " + " | ".join(titles) + " |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for kind, (make, ending) in MADE.items():
            path = pathlib.Path(folder) / f"made.{ending}"
            with open(path, "w") as file:
                make(asked.events, file)
            traces.append((kind, path))
        traces += [(kind, pathlib.Path(path)) for kind, path in (each.split("=", 1) for each in asked.kind)]
        for kind, path in traces:
            found = measure(asked.programs, kind, path)
            cells = [f"{found[title]:.2f}" if isinstance(found[title], float) else str(found[title]) for title in titles]
            print("| " + " | ".join(cells) + " |", flush=True)


main()
