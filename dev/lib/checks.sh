# shellcheck shell=bash
# Sourced by dev/test and dev/prove: makes the checkout ready, and runs one check after another.

# ready SETUP-ARGUMENTS...
ready() {
  dev/setup --quiet "$@"
  find_java
  # The tests' processes are many and short, and where Python writes no bytecode each would compile the package anew.
  "$python" -m compileall -q -j 2 airflow_kstreams dev tests/support tests/simulation tests/conformance
  # Every Kafka client brings threads, and with an arena of memory for each of them pytest grows to gigabytes.
  export MALLOC_ARENA_MAX=2
}

child=
# Ctrl-C and TERM reach the check that runs, which cleans up after itself (pytest stops its brokers), before this one ends.
stop() {
  trap - INT TERM
  if [[ -n "$child" ]]; then
    kill -INT "$child" 2>/dev/null || true
    for _ in $(seq 300); do kill -0 "$child" 2>/dev/null || break; sleep 0.1; done
    kill -KILL -- "-$child" 2>/dev/null || true
  fi
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM

# check NAME COMMAND...: each has a process group of its own, so that whatever it leaves behind can be ended with it.
check() {
  local name=$1 status=0
  shift
  printf '\n== %s\n' "$name"
  set -m
  "$@" &
  child=$!
  set +m
  wait "$child" || status=$?
  kill -TERM -- "-$child" 2>/dev/null || true
  child=
  if [[ $status != 0 ]]; then
    say "${0##*/}: $name failed"
    exit "$status"
  fi
}

checks() {
  check "ruff check" "$venv/bin/ruff" check .
  check "ruff format" "$venv/bin/ruff" format --check .
  check "mypy --strict" "$venv/bin/mypy"
  check "layers" "$venv/bin/lint-imports"
}
