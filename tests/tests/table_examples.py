"""Runs an example of docs/object-store.md on a table; it has to read what the server answers."""

import json
import os
import pathlib
import re
import sys
from collections import Counter

import deltalake
import pyarrow.fs

EXAMPLE_URL = "s3://traces/production/tables/dft"


def example(document: pathlib.Path, kind: str, url: str) -> str:
    """Return the only block of this kind that names the table."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if EXAMPLE_URL in block]
    return found.replace(EXAMPLE_URL, url)


def check_engines(code: str, wanted: Counter) -> None:
    import duckdb
    import polars

    names = {"deltalake": deltalake, "duckdb": duckdb, "polars": polars}
    # DuckDB finds the dataset among the variables of its caller.
    exec(code.replace("\nduckdb.sql", "\ngroups = duckdb.sql"), names)
    assert names["dataset"].count_rows() == wanted.total()
    reads = sum(count for row, count in wanted.items() if row[2] == "read")
    assert names["frame"].height == reads > 0
    groups = {name: (count, int(dur)) for name, count, dur in names["groups"].fetchall()}
    assert groups["read"][0] == reads
    assert sum(count for count, _ in groups.values()) == wanted.total()


def check_spark(code: str, wanted: Counter) -> None:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    names = {"deltalake": deltalake, "pathlib": pathlib, "pyarrow": pyarrow, "spark": spark}
    exec(code, names)
    events = names["events"]
    assert "storage" in events.columns
    found = Counter(tuple(row) for row in events.select("ts", "dur", "name", "pid").collect())
    assert found == wanted
    groups = events.groupBy("name").sum("dur").collect()
    sums: Counter = Counter()
    for (_, dur, name, _), count in wanted.items():
        sums[name] += dur * count
    assert {name: dur for name, dur in groups} == sums
    spark.stop()


document, kind, url, expected = sys.argv[1:]
lines = [json.loads(line) for line in pathlib.Path(expected).read_text().splitlines()]
rows = Counter((line["ts"], line["dur"], line["name"], line["pid"]) for line in lines)
check = check_spark if kind == "python spark" else check_engines
check(example(pathlib.Path(document), kind, url), rows)
