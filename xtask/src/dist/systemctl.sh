#!/bin/bash
# What the trial of the packages needs of systemctl, on a machine that systemd does not run: it
# starts what the unit says as the user that the unit says.
set -euo pipefail
unit=/usr/lib/systemd/system/traceholdd.service
state=/run/trial
mkdir -p $state

value() { sed -n "s/^$1=//p" $unit | head -1; }
# One that has ended stays as a zombie: the first process of the trial does not wait for others.
is_alive() { grep -q "^State:[[:space:]]*[^Z[:space:]]" "/proc/$1/status" 2>/dev/null; }
is_active() { [ -e $state/pid ] && is_alive "$(cat $state/pid)"; }

start() {
    is_active && return
    user=$(value User)
    export $(value Environment)
    : > $state/log
    setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs --bounding-set=-all \
        --inh-caps=-all $(value ExecStart) >> $state/log 2>&1 < /dev/null &
    echo $! > $state/pid
    for _ in $(seq 300); do
        grep -q "^listening on" $state/log && return
        is_active || break
        sleep 0.1
    done
    cat $state/log >&2
    return 1
}

stop() {
    is_active || return 0
    pid=$(cat $state/pid)
    kill -TERM "$pid"
    while is_alive "$pid"; do sleep 0.1; done
    rm $state/pid
}

command=$1
shift
case $command in
    daemon-reload) ;;
    enable) [ "${1:-}" != --now ] || start ;;
    disable) [ "${1:-}" != --now ] || stop ;;
    start) start ;;
    stop) stop ;;
    restart) stop; start ;;
    try-restart) if is_active; then stop; start; fi ;;
    is-active) is_active && echo active ;;
    status) is_active && cat $state/log ;;
    *) echo "the trial has no systemctl $command" >&2; exit 1 ;;
esac
