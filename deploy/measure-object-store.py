#!/usr/bin/env python3
"""Measure what an object store costs a reader, against direct requests to the store, or local files, in the same run.

    python3 deploy/measure-object-store.py target/release http://127.0.0.1:9000 [ranges whole rare nodes]

needs boto3 for the addresses of the contender, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a bucket `traces`. It
starts servers of its own on loopback, pushes what they serve, prints a table, and removes what it stored. For `rare`
and `nodes`, bytes and requests are those that a proxy between servers and store sees, which also delays requests;
where throughput is measured there is none.
"""

import argparse
import asyncio
import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

import boto3
from botocore.config import Config

RANGES = 16
RANGE_BYTES = 4096
WORKS = ("ranges", "whole", "rare", "nodes")
RARE = "rename"


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


class Proxy:
    """A proxy before the store. It delays what is sent to the store, all bytes by the same time."""

    REQUEST = re.compile(rb"^(GET|PUT|POST|DELETE|HEAD) (\S+) HTTP/1\.1\r\n")

    def __init__(self, endpoint):
        self.store = urllib.parse.urlsplit(endpoint)
        self.delay = 0.0
        self.sent = 0
        self.requests = collections.Counter()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self.run, args=(ready,), daemon=True).start()
        ready.wait()

    def run(self, ready):
        async def listen():
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await server.serve_forever()

        self.loop.run_until_complete(listen())

    async def serve(self, reader, writer):
        from_store, to_store = await asyncio.open_connection(self.store.hostname, self.store.port)
        waiting = asyncio.Queue(64)
        await asyncio.gather(
            self.take(reader, waiting), self.pass_on(waiting, to_store), self.answer(from_store, writer)
        )

    async def take(self, reader, waiting):
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 18):
                if request := self.REQUEST.match(chunk):
                    self.requests[kind_of(request[1].decode(), request[2].decode())] += 1
                await waiting.put((time.monotonic() + self.delay, chunk))
        await waiting.put(None)

    async def pass_on(self, waiting, to_store):
        with contextlib.suppress(ConnectionError):
            while given := await waiting.get():
                due, chunk = given
                if (early := due - time.monotonic()) > 0:
                    await asyncio.sleep(early)
                to_store.write(chunk)
                await to_store.drain()
        to_store.close()

    async def answer(self, from_store, writer):
        with contextlib.suppress(ConnectionError):
            while chunk := await from_store.read(1 << 18):
                self.sent += len(chunk)
                writer.write(chunk)
                await writer.drain()
        writer.close()

    def counts(self):
        return collections.Counter(self.requests), self.sent


def kind_of(method, path):
    """What a request is about: a storage, or what a node does again and again."""
    return f"{method} storage" if re.search(r"/s/[^/]+/", path) else f"{method} other"


class Node:
    """A server of the cluster in a folder of its own."""

    def __init__(self, given, endpoint, prefix, folder, name, check_seconds=3600):
        environment = dict(
            os.environ,
            TRACEHOLD_OBJECT_STORE_URL=f"s3://traces/{prefix}",
            TRACEHOLD_OBJECT_STORE_ENDPOINT=endpoint,
            TRACEHOLD_OBJECT_STORE_NODE=name,
            TRACEHOLD_OBJECT_STORE_CHECK_SECONDS=str(check_seconds),
            # Nothing is uploaded before it is asked for.
            TRACEHOLD_OBJECT_STORE_UPLOAD_LABEL="measured:never",
            TRACEHOLD_OTLP_GRPC_LISTEN="off",
            TRACEHOLD_OTLP_HTTP_LISTEN="off",
            TRACEHOLD_STORAGE_DISK_STOP_FREE_BYTES="0",
        )
        self.programs = given.programs
        command = [given.programs / "traceholdd", "--data-dir", f"{folder}/{name}", "--listen", "127.0.0.1:0"]
        self.log = open(f"{folder}/{name}.log", "w")
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.http = Http(self.url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def cpu(self):
        """Seconds that it has computed, in the kernel too."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def store(self, name, source, *options):
        """A finalized storage with the bytes of a file."""
        storage = self.http.json("POST", "/api/v1/storages", {"name": name, "open": True})["id"]
        push = [self.programs / "tracehold", "push", "--server", self.url, "--storage", storage, "--agent", "host"]
        subprocess.run([*push, *options, source], check=True, stdout=subprocess.DEVNULL)
        self.http.call("POST", f"/api/v1/storages/{storage}/finalize")
        while self.http.json("GET", f"/api/v1/storages/{storage}/files")["chunk_indexes"] == "in_progress":
            time.sleep(0.05)
        return storage

    def store_random(self, name, source):
        return self.store(name, source, "--kind", "raw", "--packet-bytes", str(1 << 20))

    def act(self, storage, action):
        return self.http.json("POST", f"/api/v1/storages/{storage}/tier", {"action": action})

    def largest(self, storage):
        """Path and length of its largest data file."""
        files = self.http.json("GET", f"/api/v1/storages/{storage}/files")["files"]
        data = [(file["length"], file["name"]) for file in files if file["role"] == "data"]
        length, name = max(data)
        return f"/storage/{storage}/{name}", length

    def ranges(self, path, wanted):
        text = ", ".join(f"{first}-{last}" for first, last in wanted)
        self.http.call("GET", path, headers={"range": f"bytes={text}"})

    def metrics(self):
        text = self.http.call("GET", "/metrics").decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tracehold_object_store_")]
        return {name: float(value) for name, value in lines}


def client(given):
    return boto3.client(
        "s3", endpoint_url=given.endpoint, region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )


@contextlib.contextmanager
def objects(given):
    """A prefix of the bucket; nothing is left below it."""
    prefix = f"measure-{time.time_ns()}"
    try:
        yield prefix
    finally:
        s3 = client(given)
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket="traces", Prefix=f"{prefix}/"):
            for each in page.get("Contents", []):
                s3.delete_object(Bucket="traces", Key=each["Key"])


class Direct:
    """The contender: requests to the store without a server."""

    def __init__(self, given, prefix, storage):
        s3 = client(given)
        pages = s3.list_objects_v2(Bucket="traces", Prefix=f"{prefix}/s/{storage}/f/")["Contents"]
        key = max(pages, key=lambda each: each["Size"])["Key"]
        signed = s3.generate_presigned_url("get_object", Params={"Bucket": "traces", "Key": key}, ExpiresIn=36000)
        parts = urllib.parse.urlsplit(signed)
        self.path = f"{parts.path}?{parts.query}"
        self.connections = [Http(given.endpoint) for _ in range(RANGES)]
        self.pool = concurrent.futures.ThreadPoolExecutor(RANGES)

    def ranges(self, wanted):
        def one(at):
            first, last = wanted[at]
            self.connections[at].call("GET", self.path, headers={"range": f"bytes={first}-{last}"})

        list(self.pool.map(one, range(len(wanted))))

    def whole(self):
        self.connections[0].call("GET", self.path)


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def asked(before, after):
    """Requests and bytes read between two looks at metrics."""
    gets = 'tracehold_object_store_requests_total{operation="get"}'
    read = "tracehold_object_store_read_bytes_total"
    return int(after[gets] - before[gets]), int(after[read] - before[read])


def median(values):
    return statistics.median(values)


def say(what, measured, against, name, ratio):
    print(f"{what:<24}{measured * 1000:9.2f} ms  {name} {against * 1000:9.2f} ms  {ratio}", flush=True)


def random_file(folder, megabytes):
    source = pathlib.Path(folder, "random.bin")
    with source.open("wb") as file:
        for _ in range(megabytes):
            file.write(random.randbytes(1 << 20))
    return source


def events_file(folder, count):
    """Events of which one has a rare name."""
    source = pathlib.Path(folder, "trace.pfw")
    generator = random.Random(7)
    with source.open("w") as file:
        file.write("[\n")
        for number in range(count):
            name = RARE if number == count * 2 // 3 else ("read" if number % 3 == 0 else "write")
            file.write(
                f'{{"id":{number},"name":"{name}","cat":"POSIX","pid":{number % 7},"tid":1,'
                f'"ts":{1_700_000_000_000_000 + number * 10},"dur":{generator.randrange(1000)},"ph":"X",'
                f'"args":{{"fname":"/data/{generator.getrandbits(64):016x}","ret":{generator.randrange(4096)}}}}}\n'
            )
    return source


def some_ranges(generator, length):
    firsts = sorted(generator.sample(range(0, length - (1 << 20), RANGE_BYTES * 2), RANGES))
    return [(first, first + RANGE_BYTES - 1) for first in firsts]


def measure_ranges_and_whole(given, folder):
    source = random_file(folder, given.megabytes)
    with objects(given) as prefix, Node(given, given.endpoint, prefix, folder, "one") as node:
        # Two storages of the same bytes: one is evicted, and one never.
        storage, twin = node.store_random("measured", source), node.store_random("twin", source)
        path, length = node.largest(storage)
        local_path, _ = node.largest(twin)
        before = node.metrics()
        upload = timed(lambda: node.act(storage, "upload"))
        after = node.metrics()
        puts = 'tracehold_object_store_requests_total{operation="put"}'
        print(f"one data file of {length / (1 << 20):.0f} MiB; medians")
        print(f"upload: {length / (1 << 20) / upload:.0f} MiB/s, {int(after[puts] - before[puts])} PUTs")
        direct = Direct(given, prefix, storage)
        if "ranges" in given.works:
            measure_ranges(given, node, storage, (path, local_path, length), direct)
        if "whole" in given.works:
            measure_whole(given, node, storage, (path, local_path, length), direct)


def measure_ranges(given, node, storage, files, direct):
    path, local_path, length = files
    generator = random.Random(7)
    cold, warm, local, contender, fetched = [], [], [], [], []
    # What is local is compared with its checksums when it is read first.
    node.http.call("GET", local_path)
    for _ in range(given.rounds):
        node.act(storage, "evict")
        wanted = some_ranges(generator, length)
        before = node.metrics()
        cold.append(timed(lambda: node.ranges(path, wanted)))
        fetched.append(asked(before, node.metrics()))
        contender.append(timed(lambda: direct.ranges(wanted)))
        # One behind the other, so that both find the same machine.
        for _ in range(5):
            warm.append(timed(lambda: node.ranges(path, wanted)))
            local.append(timed(lambda: node.ranges(local_path, wanted)))
    say("16 x 4 KiB cold", median(cold), median(contender), "direct",
        f"ratio {median(cold) / median(contender):.2f} (target 1.3)")
    say("16 x 4 KiB warm", median(warm), median(local), "local ",
        f"ratio {median(warm) / median(local):.2f} (target 1.1)")
    gets, read = fetched[len(fetched) // 2]
    print(f"16 x 4 KiB cold asked the store {gets} times for {read} bytes")


def measure_whole(given, node, storage, files, direct):
    path, local_path, length = files
    whole, again, local, contender = [], [], [], []
    used = []
    for _ in range(given.whole_rounds):
        node.act(storage, "evict")
        before, computed = node.metrics(), node.cpu()
        whole.append(timed(lambda: node.http.call("GET", path)))
        used.append(node.cpu() - computed)
        whole_asked = asked(before, node.metrics())
        contender.append(timed(direct.whole))
        again.append(timed(lambda: node.http.call("GET", path)))
        local.append(timed(lambda: node.http.call("GET", local_path)))
    say("whole file cold", median(whole), median(contender), "direct",
        f"speed {median(contender) / median(whole):.2f} (target 0.8)")
    say("whole file again", median(again), median(local), "local ", "")
    mib = length / (1 << 20)
    print(f"whole file cold: {mib / median(whole):.0f} MiB/s, direct {mib / median(contender):.0f} MiB/s; "
          f"{whole_asked[0]} requests, {median(used) * 1024 / mib:.2f} s of CPU a GiB")


def measure_rare(given, folder):
    proxy = Proxy(given.endpoint)
    source = events_file(folder, given.events)
    delay = given.delay_ms / 1000
    with objects(given) as prefix, Node(given, proxy.url, prefix, folder, "one") as owner:
        storage = owner.store("measured", source)
        owner.act(storage, "upload")
        bytes_all = owner.http.json("GET", f"/api/v1/storages/{storage}")["tier"]["bytes"]
        numbers = itertools.count(1000)

        def query(node):
            # Another one each time: results are kept.
            body = {"query": f'name == "{RARE}" and dur < {next(numbers)}'}
            answer = node.http.call("POST", f"/api/v1/storages/{storage}/query", body)
            assert answer.count(RARE.encode()) == 1, answer[:300]

        query(owner)
        local = median([timed(lambda: query(owner)) for _ in range(given.rounds)])
        proxy.delay = delay
        cold, moved = [], []
        for _ in range(given.rounds):
            owner.act(storage, "evict")
            before = proxy.counts()[1]
            cold.append(timed(lambda: query(owner)))
            moved.append(proxy.counts()[1] - before)
        rare_row("where it was written", (median(cold), local, delay), (median(moved), bytes_all))
        # A node that has the small files, and neither data nor chunk indexes.
        with Node(given, proxy.url, prefix, folder, "two") as other:
            other.http.call("GET", f"/api/v1/storages/{storage}")
            cold, moved = [], []
            for _ in range(given.rounds):
                other.act(storage, "evict")
                before = proxy.counts()[1]
                cold.append(timed(lambda: query(other)))
                moved.append(proxy.counts()[1] - before)
            rare_row("another node", (median(cold), local, delay), (median(moved), bytes_all))


def rare_row(where, times, moved):
    (cold, local, delay), (sent, bytes_all) = times, moved
    say(f"rare, {where}", cold, local, "local ",
        f"{(cold - local) / delay:.2f} round trips of {delay * 1000:.0f} ms more (target 3)")
    print(f"rare, {where}: {sent:.0f} of {bytes_all} bytes, {sent / bytes_all * 100:.2f} % (target 2 %)", flush=True)


def measure_nodes(given, folder):
    source = random_file(folder, given.megabytes)
    counts, rows = (1, 2, 4), collections.defaultdict(list)
    for _ in range(given.node_rounds):
        # One behind the other, so that all find the same machine.
        for count in counts:
            rows[count].append(of_cluster(given, folder, source, count))
    print("CPU of the owner a GiB, seconds: nodes, written and uploaded, served by it, while another node serves it")
    for count in counts:
        # The least: other programs on the machine only add to it.
        cpu = [min(row["cpu"][at] for row in rows[count]) for at in range(3)]
        base = [min(row["cpu"][at] for row in rows[1]) for at in range(2)]
        change = "  ".join(f"{(mine / one - 1) * 100:+.0f} %" for mine, one in zip(cpu, base))
        print(f"{count:6} " + "  ".join(f"{each:6.2f}" for each in cpu) + f"   {change} (target 10 %)")
    print("requests to the store: nodes, upload, 16 ranges, whole file, another node meets the storage")
    for count in counts:
        requests = [sorted({row["asked"][at] for row in rows[count]}) for at in range(4)]
        print(f"{count:6} " + "  ".join("/".join(map(str, each)) for each in requests), flush=True)


def of_cluster(given, folder, source, count):
    """What one storage costs its owner in a cluster of so many nodes."""
    proxy = Proxy(given.endpoint)
    gib = source.stat().st_size / (1 << 30)
    with objects(given) as prefix, contextlib.ExitStack() as nodes:
        names = [f"{prefix}-{number}" for number in range(count)]
        owner, *others = [
            nodes.enter_context(Node(given, proxy.url, prefix, folder, name, check_seconds=5)) for name in names
        ]

        def done(work):
            computed, before = owner.cpu(), proxy.counts()[0]
            work()
            requests = proxy.counts()[0] - before
            of_storage = sum(number for kind, number in requests.items() if kind.endswith("storage"))
            return (owner.cpu() - computed) / gib, of_storage

        pushed = []

        def write():
            pushed.append(owner.store_random("measured", source))
            owner.act(pushed[0], "upload")

        written = done(write)
        storage = pushed[0]
        path, length = owner.largest(storage)
        owner.act(storage, "evict")
        ranges = done(lambda: owner.ranges(path, some_ranges(random.Random(7), length)))
        whole = []
        for _ in range(4):
            owner.act(storage, "evict")
            whole.append(done(lambda: owner.http.call("GET", path)))
        served, met = [0.0], [0]
        for other in others:
            _, asked_for = done(lambda: other.http.call("GET", f"/api/v1/storages/{storage}"))
            computed, _ = done(lambda: other.http.call("GET", path))
            met.append(asked_for)
            served.append(computed)
        return {
            "cpu": (written[0], statistics.mean(cpu for cpu, _ in whole), max(served)),
            "asked": (written[1], ranges[1], whole[0][1], max(met)),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("endpoint")
    parser.add_argument("works", nargs="*", default=WORKS, metavar="work", help=f"of {', '.join(WORKS)}; default: all")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--whole-rounds", type=int, default=7)
    parser.add_argument("--node-rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--delay-ms", type=int, default=60)
    given = parser.parse_args()
    if unknown := set(given.works) - set(WORKS):
        parser.error(f"unknown: {', '.join(unknown)}")
    load = " ".join(f"{each:.2f}" for each in os.getloadavg())
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, load average {load}")
    with tempfile.TemporaryDirectory() as folder:
        if {"ranges", "whole"} & set(given.works):
            measure_ranges_and_whole(given, folder)
        if "rare" in given.works:
            measure_rare(given, folder)
        if "nodes" in given.works:
            measure_nodes(given, folder)


if __name__ == "__main__":
    main()
