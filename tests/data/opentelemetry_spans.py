"""Makes spans with the API of OpenTelemetry alone, and prints how many.

`opentelemetry-instrument` configures the exporter from its defaults and the environment.
"""

from opentelemetry import trace

SPANS = 300

tracer = trace.get_tracer("spans", "1.0")
for number in range(SPANS // 3):
    with tracer.start_as_current_span("request") as root:
        root.set_attribute("number", number)
        for _ in range(2):
            with tracer.start_as_current_span("step"):
                pass
print(SPANS)
