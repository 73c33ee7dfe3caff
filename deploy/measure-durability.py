#!/usr/bin/env python3
"""Measure how long an acknowledgement takes with `durability = "object"`, against PUTs of the same store in the same run.

    python3 deploy/measure-durability.py target/release http://127.0.0.1:9000

needs boto3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a bucket `traces`. It starts servers of its own on loopback. Rounds
of acknowledgements and of PUTs, each of as many bytes as a record has, take turns. Target: the 99th percentile of
acknowledgements is at most twice the interval between two records and the 99th percentile of PUTs.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

import boto3
from botocore.config import Config


def connect(url):
    parts = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port)


def call(connection, method, path, body=None, headers=None):
    if isinstance(body, dict):
        body, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    content = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{method} {path}: {response.status} {content[:300]!r}")
    return json.loads(content or b"null")


class Server:
    """A server of its own, with packets of `agents` agents."""

    def __init__(self, given, folder, durability):
        environment = dict(
            os.environ,
            TRACEHOLD_OBJECT_STORE_URL=f"s3://traces/durability-{time.time_ns()}",
            TRACEHOLD_OBJECT_STORE_ENDPOINT=given.endpoint,
            TRACEHOLD_OBJECT_STORE_DURABILITY=durability,
            TRACEHOLD_OBJECT_STORE_APPEND_INTERVAL_MS=str(given.interval),
            TRACEHOLD_OTLP_GRPC_LISTEN="off",
            TRACEHOLD_OTLP_HTTP_LISTEN="off",
            TRACEHOLD_STORAGE_DISK_STOP_FREE_BYTES="0",
        )
        command = [given.programs / "traceholdd", "--data-dir", f"{folder}/{durability}", "--listen", "127.0.0.1:0"]
        log = open(f"{folder}/{durability}.log", "w")
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        connection = connect(self.url)
        self.storage = call(connection, "POST", "/api/v1/storages", {"name": "measured", "open": True})["id"]
        for agent in range(given.agents):
            call(connection, "PUT", f"/api/v1/agents/a{agent}", {"name": "a", "host": "h"})
            stream = {"kind": "raw", "codec": "none"}
            call(connection, "PUT", f"/api/v1/agents/a{agent}/streams/s", stream)
        self.sequences = [0] * given.agents

    def push(self, agent, until, times, packet):
        connection = connect(self.url)
        path = f"/api/v1/storages/{self.storage}/agents/a{agent}/streams/s/packets"
        while time.perf_counter() < until:
            headers = {
                "content-type": "application/octet-stream",
                "tracehold-epoch": "1",
                "tracehold-sequence": str(self.sequences[agent]),
            }
            begin = time.perf_counter()
            receipt = call(connection, "POST", path, packet, headers)["receipts"][0]
            times.append(time.perf_counter() - begin)
            assert receipt["durable"]
            self.sequences[agent] += 1

    def acknowledgements(self, given):
        until = time.perf_counter() + given.seconds
        times, packet = [], random.randbytes(given.bytes)
        work = lambda agent: self.push(agent, until, times, packet)
        threads = [threading.Thread(target=work, args=(agent,)) for agent in range(given.agents)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return times


def puts(given, s3, prefix):
    until = time.perf_counter() + given.seconds
    times, body = [], random.randbytes(given.bytes * given.agents)
    while time.perf_counter() < until:
        begin = time.perf_counter()
        s3.put_object(Bucket="traces", Key=f"{prefix}/{len(times)}-{random.random()}", Body=body)
        times.append(time.perf_counter() - begin)
        # As often as a storage appends.
        time.sleep(given.interval / 1000)
    return times


def percentiles(times):
    cuts = statistics.quantiles(times, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("endpoint")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--interval", type=int, default=250, help="append_interval_ms")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    s3 = boto3.client(
        "s3", endpoint_url=given.endpoint, region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )
    found = {"local": [], "object": [], "PUT": []}
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(given, folder, durability) for durability in ("local", "object")]
        try:
            for _ in range(given.rounds):
                for name, server in zip(found, servers):
                    found[name] += server.acknowledgements(given)
                found["PUT"] += puts(given, s3, f"puts-{time.time_ns()}")
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()
    print(f"{given.agents} agents, packets of {given.bytes} bytes, interval {given.interval} ms, load {os.getloadavg()[0]:.1f}")
    for name, times in found.items():
        middle, high = percentiles(times)
        print(f"{name:8} {len(times):7} times, median {middle:8.2f} ms, 99 % {high:8.2f} ms")
    bound = given.interval + percentiles(found["PUT"])[1]
    ratio = percentiles(found["object"])[1] / bound
    print(f"acknowledgement, 99 %, of interval and PUT ({bound:.0f} ms): {ratio:.2f}, target 2")


if __name__ == "__main__":
    main()
