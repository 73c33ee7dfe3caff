"""Prints the schema and the rows of tables, as pyarrow and DuckDB read them.

usage: table_rows.py FORMAT FILE [FORMAT FILE …]
Prints for each file a line with a JSON object: {arrow: {column: type}, duckdb: {column: type}, rows: [{column: value}]},
with times as integers of nanoseconds.
"""

import json
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


def read(kind, path):
    if kind == "parquet":
        table = pq.read_table(path)
    else:
        with open(path, "rb") as file:
            table = pa.ipc.open_stream(file).read_all()
    table.validate(full=True)
    arrow = {field.name: str(field.type) for field in table.schema}
    plain = {}
    for name, column in zip(table.column_names, table.columns):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        plain[name] = column.to_pylist()
    rows = [dict(zip(plain, row)) for row in zip(*plain.values())]
    connection = duckdb.connect()
    relation = connection.read_parquet(path) if kind == "parquet" else connection.from_arrow(table)
    types = {name: str(kind) for name, kind in zip(relation.columns, relation.types)}
    # Both readers have the same values.
    first = relation.columns[0]
    time = f'epoch_ns("{first}")' if types[first].startswith("TIMESTAMP") else f'"{first}"'
    found = sorted(row[0] for row in relation.project(time).fetchall() if row[0] is not None)
    assert found == sorted(value for value in plain[first] if value is not None)
    return {"arrow": arrow, "duckdb": types, "rows": rows}


for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    print(json.dumps(read(kind, path)))
