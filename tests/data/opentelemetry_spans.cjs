// Sends spans with the gRPC exporter of OpenTelemetry for Node, configured by the environment, and
// prints how many.
const { BatchSpanProcessor, NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-grpc');

const SPANS = 300;

const processor = new BatchSpanProcessor(new OTLPTraceExporter());
const provider = new NodeTracerProvider({ spanProcessors: [processor] });
const tracer = provider.getTracer('spans', '1.0');
for (let number = 0; number < SPANS; number += 1) {
  const span = tracer.startSpan('request');
  span.setAttribute('number', number);
  span.end();
}
provider.shutdown().then(() => console.log(SPANS));
