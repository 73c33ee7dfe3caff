# Builds traceholdd and tracehold; the image contains only these programs.
#
#   docker build -t tracehold .
#   docker run --rm -p 127.0.0.1:7117:7117 -p 127.0.0.1:4317:4317 -v tracehold:/var/lib/tracehold \
#     --security-opt seccomp=deploy/seccomp.json tracehold
#
# With object stores besides S3: docker build --build-arg FEATURES=server/azure,server/gcp -t tracehold .
#
# The seccomp profile is optional: Docker's default profile blocks io_uring, and traceholdd then uses
# blocking calls for writes.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
ARG FEATURES=
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --package server --package client --features "$FEATURES" \
    && install -D --target-directory=/out target/dist/traceholdd target/dist/tracehold

FROM debian:bookworm-slim
RUN useradd --system --uid 7117 --home-dir /var/lib/tracehold --create-home tracehold
COPY --from=build /out/ /usr/local/bin/
USER tracehold
VOLUME /var/lib/tracehold
# 4317 and 4318 take spans of OpenTelemetry, over gRPC and HTTP, and serve nothing else.
EXPOSE 7117 4317 4318
# Inside the container the server listens on all addresses; `-p` decides which address of the host is
# published. Without tokens the server refuses such an address otherwise: publish it on loopback, or
# create a token first, and set TRACEHOLD_HTTP_INSECURE=false:
#   docker run --rm -v tracehold:/var/lib/tracehold tracehold token create
ENV TRACEHOLD_HTTP_LISTEN=0.0.0.0:7117 TRACEHOLD_HTTP_INSECURE=true \
    TRACEHOLD_STORAGE_DATA_DIR=/var/lib/tracehold
# SIGTERM drains and commits; give it longer than http.drain_seconds before SIGKILL.
STOPSIGNAL SIGTERM
ENTRYPOINT ["traceholdd"]
