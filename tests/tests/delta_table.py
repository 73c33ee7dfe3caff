"""Prepares files of events for a Delta Lake table, and reads the table as other engines do."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

SECOND = 1_000_000_000


def prepare(folder: Path) -> None:
    """Write each file with times as numbers, and print what is known of its columns."""
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        times = table["ts"].cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("ts"), "ts", times)
        table = table.cast(
            pa.schema(
                pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
                for field in table.schema
            )
        )
        pq.write_table(table, path)
        columns = {}
        for name in ("ts", "dur", "name", "agent"):
            limits = pc.min_max(table[name]).as_py()
            columns[name] = {**limits, "nulls": table[name].null_count}
        found = {"file": path.name, "rows": len(table), "columns": columns}
        print(json.dumps(found))


def rows_of(table: pa.Table) -> Counter:
    columns = [table[name].to_pylist() for name in ("ts", "dur", "name", "pid")]
    return Counter(zip(*columns, strict=True))


def read(url: str, options: dict[str, str], expected: Path, begin: int) -> None:
    """Compare what engines read with the lines that the server answered."""
    lines = [json.loads(line) for line in expected.read_text().splitlines()]
    wanted = Counter((line["ts"], line["dur"], line["name"], line["pid"]) for line in lines)
    table = deltalake.DeltaTable(url, storage_options=options)
    dataset = table.to_pyarrow_dataset()
    assert rows_of(dataset.to_table()) == wanted, "deltalake"
    end = begin + SECOND
    window = pyarrow.dataset.field("ts") < end
    inside = sum(count for row, count in wanted.items() if row[0] < end)
    assert dataset.to_table(filter=window).num_rows == inside > 0
    frame = polars.scan_delta(url, storage_options=options)
    assert rows_of(frame.collect().to_arrow()) == wanted, "polars"
    assert frame.filter(polars.col("ts") < end).collect().height == inside
    names = duckdb.sql("select name, count(*), sum(dur) from dataset group by name").fetchall()
    by_name: dict[str, list[int]] = {}
    for (_, dur, name, _), count in wanted.items():
        events = by_name.setdefault(name, [0, 0])
        events[0] += count
        events[1] += dur * count
    assert {name: [count, int(dur)] for name, count, dur in names} == by_name, "duckdb"
    files = len(table.file_uris())
    pruned = len(list(dataset.get_fragments(filter=window)))
    print(json.dumps({"version": table.version(), "files": files, "read": pruned}))


if sys.argv[1] == "prepare":
    prepare(Path(sys.argv[2]))
else:
    read(sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
# Arrow still reads ahead through Python, and aborts the process when the interpreter ends before.
sys.stdout.flush()
os._exit(0)
