#!/bin/sh
# Builds the programs under test before the runner times the first test, and passes their folder to
# the tests. `cargo xtask test` has built them together with the tests and sets PROGRAMS_UNDER_TEST.
set -eu
if [ -z "${PROGRAMS_UNDER_TEST:-}" ]; then
    cd "$(dirname "$0")/.."
    "${CARGO:-cargo}" build --quiet --package server --package client --bins \
        --features server/azure,server/gcp
    PROGRAMS_UNDER_TEST="${CARGO_TARGET_DIR:-$PWD/target}/debug"
fi
if [ ! -x "$PROGRAMS_UNDER_TEST/traceholdd" ] || [ ! -x "$PROGRAMS_UNDER_TEST/tracehold" ]; then
    echo "$PROGRAMS_UNDER_TEST does not contain traceholdd and tracehold: build them there with" >&2
    echo "cargo build --package server --package client --bins --features server/azure,server/gcp, or unset PROGRAMS_UNDER_TEST" >&2
    exit 1
fi
echo "PROGRAMS_UNDER_TEST=$PROGRAMS_UNDER_TEST" >> "$NEXTEST_ENV"
