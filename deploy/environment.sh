# The virtual environment that quickstart.sh, test.sh and bench.sh share: .venv in the checkout. Sourced, not run.
# What must not be broken here: a second run does nothing while pyproject.toml is the same, and whatever is missing is
# named together with the command that brings it.

say() { printf '%s\n' "$*"; }

stop() {
  printf '\n%s\n' "$*" >&2
  exit 1
}

# Sets PYTHON to an interpreter of at least 3.11.
find_python() {
  for PYTHON in python3 python3.14 python3.13 python3.12 python3.11 python; do
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
  done
  stop 'Python 3.11 or newer is needed and was not found. On Debian and Ubuntu: sudo apt install python3 python3-venv'
}

# What an installation depends on: the project file, the interpreter, and the place (a venv cannot be moved).
fingerprint() {
  { cat pyproject.toml && "$PYTHON" -V && pwd; } | cksum
}

# Makes .venv where there is none, or where another Python or another place made it.
make_venv() {
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    stop "$("$PYTHON" -V) cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv"
  rm -rf .venv
  "$PYTHON" -m venv .venv || stop 'The virtual environment .venv could not be made; the reason is above.'
}

# install EXTRAS: installs the checkout, editable, with '' or '[dev]'. Does nothing when that was done already.
install() {
  mark=".venv/installed$1"
  wanted=$(fingerprint)
  # The developer's extras contain everything that no extras contain.
  for each in "$mark" '.venv/installed[dev]'; do
    [ -x .venv/bin/python ] && [ -f "$each" ] && [ "$(cat "$each")" = "$wanted" ] && return
  done
  make_venv
  mkdir -p .cache
  .venv/bin/python -m pip install --disable-pip-version-check --quiet --editable ".$1" >.cache/pip.log 2>&1 || {
    tail -n 20 .cache/pip.log >&2
    stop 'Installing failed; the end of .cache/pip.log is above. Is there a network, or a package index to reach?'
  }
  say "$wanted" >"$mark"
}
