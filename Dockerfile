# Builds traceholdd and tracehold, and keeps only them.
#
#   docker build -t tracehold .
#   docker run --rm -p 127.0.0.1:7117:7117 -v tracehold:/var/lib/tracehold \
#     --security-opt seccomp=deploy/seccomp.json tracehold
#
# Without the seccomp profile the server runs too: Docker's own profile refuses io_uring, and then
# traceholdd writes by blocking calls.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --package server --package client \
    && install -D --target-directory=/out target/release/traceholdd target/release/tracehold

FROM debian:bookworm-slim
RUN useradd --system --uid 7117 --home-dir /var/lib/tracehold --create-home tracehold
COPY --from=build /out/ /usr/local/bin/
USER tracehold
VOLUME /var/lib/tracehold
EXPOSE 7117
# A container is reached from outside of it, so it listens on every address of its own network;
# which of the host's addresses leads there is decided by `-p`.
ENV TRACEHOLD_HTTP_LISTEN=0.0.0.0:7117 TRACEHOLD_STORAGE_DATA_DIR=/var/lib/tracehold
# SIGTERM drains and commits; give it longer than http.drain_seconds before SIGKILL.
STOPSIGNAL SIGTERM
ENTRYPOINT ["traceholdd"]
