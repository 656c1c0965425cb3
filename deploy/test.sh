#!/bin/sh
# Sets up what the tests need inside the checkout (.venv, .cache) and runs them all: lint, types, import contracts, the
# suite on SQLite and on a Postgres cluster that the tests start themselves, and the peers that come from npm.
#
#   sh deploy/test.sh [--quick] [PYTEST ARGUMENT…]
#
# --quick leaves out what takes long: the slow tests, the npm peers, the linters.
# What must not be broken here: nothing is left out in silence, and the last line is pytest's.
set -eu
cd "$(dirname "$0")/.."
. deploy/environment.sh

QUICK=
if [ "${1:-}" = --quick ]; then
  QUICK=yes
  shift
fi

loud() {
  say ''
  say '!!!' "$@"
  say ''
}

# Exports the folder of initdb and postgres, where there is one.
find_postgres() {
  [ -n "${ACP_LEDGER_TEST_POSTGRES_BIN:-}" ] && return
  for folder in "$(pg_config --bindir 2>/dev/null || true)" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) \
    "$(dirname "$(command -v initdb || echo /)")"; do
    if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
      export ACP_LEDGER_TEST_POSTGRES_BIN="$folder"
      return
    fi
  done
  [ -z "${ACP_LEDGER_TEST_REQUIRE_POSTGRES:-}" ] || stop 'The Postgres server programs were not found and are required.'
  loud 'NO POSTGRES: its server programs (initdb, postgres) were not found, so everything runs on SQLite ALONE.' \
    'On Debian and Ubuntu: sudo apt install postgresql'
}

# Installs the npm peers, pinned, into .cache/peers, where they are not there already.
find_peers() {
  wanted=$(cksum <tests/support/peers/package.json)
  export ACP_LEDGER_TEST_PEERS="$PWD/.cache/peers"
  [ "$(cat .cache/peers/installed 2>/dev/null || true)" = "$wanted" ] && return
  if command -v npm >/dev/null; then
    say 'installing the npm peers into .cache/peers'
    rm -rf .cache/peers
    mkdir -p .cache/peers
    cp tests/support/peers/package.json .cache/peers/
    if (cd .cache/peers && npm install --no-audit --no-fund --no-package-lock --ignore-scripts >npm.log 2>&1); then
      say "$wanted" >.cache/peers/installed
      return
    fi
    tail -n 20 .cache/peers/npm.log >&2
    why='npm could not install them; the end of .cache/peers/npm.log is above.'
  else
    why='npm was not found. On Debian and Ubuntu: sudo apt install nodejs npm'
  fi
  unset ACP_LEDGER_TEST_PEERS
  [ -z "${ACP_LEDGER_TEST_REQUIRE_PEERS:-}" ] || stop "The npm peers are required. $why"
  loud "NO NPM PEERS: tests against the TypeScript SDK, acpx and codex are skipped. $why"
}

find_python
install '[dev]'
find_postgres
if [ -n "$QUICK" ]; then
  set -- -m 'not slow and not peers and not lint' "$@"
else
  find_peers
fi
[ -n "${ACP_LEDGER_TEST_AGENTS:-}" ] || say 'opencode and Claude Code are left out; sh deploy/agents.sh FOLDER installs them'
command -v strace >/dev/null ||
  loud 'NO STRACE: the tests that slow the disk down are skipped. On Debian and Ubuntu: sudo apt install strace'
command -v systemd-socket-activate >/dev/null ||
  loud 'NO SYSTEMD: the tests of its units and of socket activation are skipped. On Debian: sudo apt install systemd'

# The tests are shared out among as many workers as there are processors, up to four. Their folders have a short name,
# for the path of a Unix socket is at most 107 bytes; they stay until the next run in this checkout.
workers=${ACP_LEDGER_TEST_WORKERS:-$(nproc 2>/dev/null || echo 2)}
[ "$workers" -le 4 ] || workers=4
folder=/tmp/al-$(id -u)-$(($(pwd | cksum | cut -d' ' -f1) % 100000))
exec .venv/bin/python -m pytest -n "$workers" --dist worksteal --basetemp "$folder" "$@"
