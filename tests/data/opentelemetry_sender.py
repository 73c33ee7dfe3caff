"""Sends nested spans with the OpenTelemetry SDK, and prints what it sent as JSON.

Arguments: the URL of the traces endpoint, the number of requests to play, the compression.
"""

import json
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

url, rounds, compression = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sent = {"roots": 0, "spans": 0, "errors": 0, "exceptions": 0, "failed": 0, "names": {}}


class CountingExporter(OTLPSpanExporter):
    """Counts exports that failed."""

    def export(self, spans):
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            sent["failed"] += len(spans)
        return result


provider = TracerProvider(resource=Resource.create({"service.name": "peer", "host.name": "here"}))
exporter = CountingExporter(endpoint=url, compression=Compression(compression))
provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=64))
tracer = provider.get_tracer("sender", "1.0")


def count(name):
    sent["spans"] += 1
    sent["names"][name] = sent["names"].get(name, 0) + 1


for number in range(rounds):
    with tracer.start_as_current_span("request", kind=trace.SpanKind.SERVER) as root:
        root.set_attribute("http.route", "/cart")
        root.set_attribute("number", number)
        count("request")
        sent["roots"] += 1
        for _ in range(number % 3):
            with tracer.start_as_current_span("lookup"):
                count("lookup")
                with tracer.start_as_current_span("query", kind=trace.SpanKind.CLIENT):
                    count("query")
        try:
            with tracer.start_as_current_span("pay"):
                count("pay")
                if number % 4 == 0:
                    sent["errors"] += 1
                    sent["exceptions"] += 1
                    raise ValueError("card refused")
        except ValueError:
            pass

provider.shutdown()
print(json.dumps(sent))
