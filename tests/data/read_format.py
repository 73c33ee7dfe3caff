"""Reads an answer of a query with the readers of others, and says what it holds.

usage: read_format.py FORMAT FILE [FORMAT FILE …]
Prints a line of JSON for each file: {count, dur_sum, names: {name: count}, first, last, columns} of rows, and {groups: {value:
[count, dur_sum]}} of groups.
"""

import json
import sys

import duckdb
import pyarrow as pa
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


def of_table(relation, connection):
    columns = {name: str(kind) for name, kind in zip(relation.columns, relation.types)}
    if "dur_mean" in columns:
        key = relation.columns[0]
        rows = connection.execute(f'SELECT "{key}", count, dur_sum FROM answer').fetchall()
        return {"groups": {str(row[0]): [row[1], row[2]] for row in rows}, "columns": columns}
    totals = connection.execute(
        "SELECT count(*), sum(dur)::HUGEINT, min(epoch_ns(ts)), max(epoch_ns(ts)) FROM answer"
    ).fetchone()
    names = connection.execute("SELECT name, count(*) FROM answer GROUP BY name").fetchall()
    ordered = connection.execute("SELECT epoch_ns(ts) FROM answer").fetchall()
    times = [row[0] for row in ordered if row[0] is not None]
    return {
        "count": totals[0],
        "dur_sum": totals[1] and int(totals[1]),
        "first": totals[2],
        "last": totals[3],
        "names": dict(names),
        "columns": columns,
        "ordered": times == sorted(times),
    }


def of_perfetto(data):
    trace = Trace()
    trace.ParseFromString(data)
    tracks, stacks, timed, told = set(), {}, [], {"count": 0, "dur_sum": 0, "names": {}}
    first = last = None
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        if number == 0:
            assert packet.sequence_flags == 1 and len(packet.clock_snapshot.clocks) == 2
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in tracks
            assert not descriptor.parent_uuid or descriptor.parent_uuid in tracks
            tracks.add(descriptor.uuid)
        elif packet.HasField("track_event"):
            timed.append((packet.timestamp, number, packet.track_event))
    # As the trace processor does: by time, and as they come where that is the same.
    for time, _, event in sorted(timed, key=lambda item: item[:2]):
        assert event.track_uuid in tracks
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_END:
            told["dur_sum"] += time - stack.pop()
            continue
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(time)
        else:
            assert event.type == TrackEvent.TYPE_INSTANT
        told["count"] += 1
        told["names"][event.name] = told["names"].get(event.name, 0) + 1
        first = time if first is None else min(first, time)
        last = time if last is None else max(last, time)
    assert all(not stack for stack in stacks.values())
    return {**told, "first": first, "last": last, "tracks": len(tracks)}


def read(kind, path):
    if kind == "perfetto":
        with open(path, "rb") as file:
            return of_perfetto(file.read())
    connection = duckdb.connect()
    if kind == "parquet":
        relation = connection.read_parquet(path)
    else:
        with open(path, "rb") as file:
            table = pa.ipc.open_stream(file).read_all()
        table.validate(full=True)
        relation = connection.from_arrow(table)
    relation.create_view("answer")
    return of_table(relation, connection)


for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    print(json.dumps(read(kind, path)))
