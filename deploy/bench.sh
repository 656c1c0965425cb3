#!/bin/sh
# Measures the product beside its limit on this machine: an idle line, a burst, memory, and the runner's start.
# Arguments go to tests/bench/bench.py (--help lists them). Asserts nothing; numbers of a busy machine mean little.
set -eu
cd "$(dirname "$0")/.."
. deploy/environment.sh

find_python
install '[dev]'
exec .venv/bin/python tests/bench/bench.py "$@"
