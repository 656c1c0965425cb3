#!/bin/sh
# From a checkout to a recorded session: makes .venv, installs acp-ledger into it, records a scripted session through
# the real daemon and runner, and checks that what is stored is what was said. Nothing outside the checkout and the
# temporary directory is touched. Arguments go to `ledgerctl demo`.
set -eu
cd "$(dirname "$0")/.."
. deploy/environment.sh

find_python
say "[1/3] $("$PYTHON" -V), virtual environment .venv"
say '[2/3] installing acp-ledger'
install ''
say '[3/3] ledgerctl demo'
exec .venv/bin/ledgerctl demo "$@"
