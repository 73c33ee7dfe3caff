#!/usr/bin/env python3
"""Measure what an object store costs a reader, against direct requests to the store in the same run.

    python3 deploy/measure-object-store.py target/release http://127.0.0.1:9000

needs boto3 for the addresses of the contender, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a bucket `traces`. It
starts a server of its own on loopback, pushes one file of random bytes, and prints a table.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time
import urllib.parse

import boto3
from botocore.config import Config

RANGES = 16
RANGE_BYTES = 4096


class Http:
    """One connection that stays open."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port)

    def call(self, method, path, body=None, headers=None):
        body = None if body is None else json.dumps(body).encode()
        headers = dict(headers or {})
        if body is not None:
            headers["content-type"] = "application/json"
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:300]!r}")
        return content

    def json(self, method, path, body=None):
        return json.loads(self.call(method, path, body) or b"null")


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def metrics(server):
    text = server.call("GET", "/metrics").decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tracehold_object_store_")]
    return {name: float(value) for name, value in lines}


def asked(before, after):
    """Requests and bytes read between two looks."""
    gets = 'tracehold_object_store_requests_total{operation="get"}'
    read = "tracehold_object_store_read_bytes_total"
    return int(after[gets] - before[gets]), int(after[read] - before[read])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("endpoint")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    s3 = boto3.client(
        "s3", endpoint_url=given.endpoint, region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"measure-{time.time_ns()}"
        environment = dict(
            os.environ,
            TRACEHOLD_OBJECT_STORE_URL=f"s3://traces/{prefix}",
            TRACEHOLD_OBJECT_STORE_ENDPOINT=given.endpoint,
            TRACEHOLD_OBJECT_STORE_CHECK_SECONDS="3600",
            TRACEHOLD_OTLP_GRPC_LISTEN="off",
            TRACEHOLD_OTLP_HTTP_LISTEN="off",
            TRACEHOLD_STORAGE_DISK_STOP_FREE_BYTES="0",
        )
        command = [given.programs / "traceholdd", "--data-dir", f"{folder}/data", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True
        )
        try:
            url = process.stdout.readline().split()[-1]
            measure(given, s3, prefix, folder, url)
        finally:
            process.terminate()
            process.wait()


def measure(given, s3, prefix, folder, url):
    server = Http(url)
    source = pathlib.Path(folder, "random.bin")
    with source.open("wb") as file:
        for _ in range(given.megabytes):
            file.write(random.randbytes(1 << 20))
    storage = server.json("POST", "/api/v1/storages", {"name": "measured", "open": True})["id"]
    push = [given.programs / "tracehold", "push", "--server", url, "--storage", storage, "--agent", "host"]
    subprocess.run([*push, "--kind", "raw", "--packet-bytes", str(1 << 20), source], check=True, stdout=subprocess.DEVNULL)
    server.call("POST", f"/api/v1/storages/{storage}/finalize")
    files = server.json("GET", f"/api/v1/storages/{storage}/files")["files"]
    name, length = max(((file["name"], file["length"]) for file in files if file["role"] == "data"), key=lambda f: f[1])
    path = f"/storage/{storage}/{name}"
    generator = random.Random(7)

    def ranges():
        firsts = sorted(generator.sample(range(0, length - RANGE_BYTES, RANGE_BYTES * 2), RANGES))
        return [(first, first + RANGE_BYTES - 1) for first in firsts]

    def multi(wanted):
        text = ", ".join(f"{first}-{last}" for first, last in wanted)
        server.call("GET", path, headers={"range": f"bytes={text}"})

    local = [timed(lambda: multi(ranges())) for _ in range(given.rounds)]
    act = lambda action: server.call("POST", f"/api/v1/storages/{storage}/tier", {"action": action})
    before = metrics(server)
    upload = timed(lambda: act("upload"))
    after = metrics(server)
    puts = 'tracehold_object_store_requests_total{operation="put"}'
    upload_puts = int(after[puts] - before[puts])
    pages = s3.list_objects_v2(Bucket="traces", Prefix=f"{prefix}/s/{storage}/f/")["Contents"]
    key = max(pages, key=lambda each: each["Size"])["Key"]
    signed = s3.generate_presigned_url("get_object", Params={"Bucket": "traces", "Key": key}, ExpiresIn=3600)
    parts = urllib.parse.urlsplit(signed)
    signed_path = f"{parts.path}?{parts.query}"
    connections = [Http(given.endpoint) for _ in range(RANGES)]
    pool = concurrent.futures.ThreadPoolExecutor(RANGES)

    def direct(wanted):
        def one(at):
            first, last = wanted[at]
            connections[at].call("GET", signed_path, headers={"range": f"bytes={first}-{last}"})

        list(pool.map(one, range(RANGES)))

    cold, warm, contender, fetched = [], [], [], []
    for _ in range(given.rounds):
        act("evict")
        wanted = ranges()
        before = metrics(server)
        cold.append(timed(lambda: multi(wanted)))
        fetched.append(asked(before, metrics(server)))
        warm.append(timed(lambda: multi(wanted)))
        contender.append(timed(lambda: direct(wanted)))
    whole, whole_contender, whole_local = [], [], []
    for _ in range(5):
        act("evict")
        before = metrics(server)
        whole.append(timed(lambda: server.call("GET", path)))
        whole_asked = asked(before, metrics(server))
        whole_local.append(timed(lambda: server.call("GET", path)))
        whole_contender.append(timed(lambda: connections[0].call("GET", signed_path)))
    report(
        length,
        (local, cold, warm, contender, fetched),
        (whole, whole_local, whole_contender, whole_asked),
        (upload, upload_puts),
    )


def report(length, small, large, uploaded):
    median = lambda values: statistics.median(values) * 1000
    local, cold, warm, contender, fetched = small
    whole, whole_local, whole_contender, whole_asked = large
    upload, upload_puts = uploaded
    print(f"one data file of {length / (1 << 20):.0f} MiB; milliseconds, medians")
    print(f"16 x 4 KiB cold       {median(cold):9.2f}  direct {median(contender):9.2f}  "
          f"ratio {median(cold) / median(contender):.2f} (target 1.3)")
    print(f"16 x 4 KiB warm       {median(warm):9.2f}  local  {median(local):9.2f}  "
          f"ratio {median(warm) / median(local):.2f} (target 1.1)")
    print(f"whole file cold       {median(whole):9.1f}  direct {median(whole_contender):9.1f}  "
          f"speed {median(whole_contender) / median(whole):.2f} (target 0.8)")
    print(f"whole file afterwards {median(whole_local):9.1f}")
    gets, read = fetched[len(fetched) // 2]
    print(f"16 x 4 KiB cold asked the store {gets} times for {read} bytes; the whole file {whole_asked[0]} times")
    print(f"upload: {length / (1 << 20) / upload:.0f} MiB/s, {upload_puts} PUTs")


if __name__ == "__main__":
    main()
