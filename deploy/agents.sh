#!/bin/sh
# Installs the large agents of tests/system/test_agents.py, pinned, into a folder: some 500 MB from the npm registry.
#
#   sh deploy/agents.sh FOLDER
#
# What must not be broken here: no script of a package runs, and nothing is written outside the folder and npm's cache.
set -eu
[ $# -eq 1 ] || {
  printf 'Name the folder to install into: sh deploy/agents.sh FOLDER\n' >&2
  exit 2
}
mkdir -p "$1"
cp "$(dirname "$0")/../tests/support/peers/agents.json" "$1/package.json"
cd "$1"
npm install --no-audit --no-fund --no-package-lock --ignore-scripts
printf 'Installed. Run them with: ACP_LEDGER_TEST_AGENTS=%s sh deploy/test.sh tests/system/test_agents.py\n' "$PWD"
