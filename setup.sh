#!/bin/sh
# Make the environment: .venv, or the one whose python is given, whose torch is then left as it is.
# sh setup.sh PYTHON EXTRAS: PYTHON may be empty; EXTRAS are those of pyproject.toml, by default what the tests need.
set -eu
fail() { echo "setup: $1" >&2; exit 2; }

given=${1:-}
extras=${2:-dev,export,hub,slurm}
if [ -n "$given" ]; then
    "$given" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "PYTHON=$given is no Python 3.11 or later: give the path of one, or leave PYTHON out"
    version=$("$given" -c 'import torch; print(torch.__version__)' 2>/dev/null) ||
        fail "PYTHON=$given has no torch: install torch >= 2.9 there, or leave PYTHON out to make .venv"
    "$given" -c "import sys; sys.exit(tuple(map(int, '$version'.split('+')[0].split('.')[:2])) < (2, 9))" ||
        fail "PYTHON=$given has torch $version, but 2.9 or later is needed"
    pin=$(mktemp)
    trap 'rm -f "$pin"' EXIT
    echo "torch==$version" >"$pin"  # pip fails rather than exchange it
    "$given" -m pip install --quiet --constraint "$pin" --editable ".[$extras]"
    exit 0
fi

for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null 2>&1 && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$name
        break
    fi
done
[ -n "${python:-}" ] || fail "no Python 3.11 or later: install it (Debian, Ubuntu: apt install python3 python3-venv)"
[ -x .venv/bin/python ] || "$python" -m venv .venv 2>/dev/null || {
    rm -rf .venv
    fail "$python has no venv module: install it (Debian, Ubuntu: apt install python3-venv)"
}
# Modules are compiled when they are imported, which most of them never are.
install() { .venv/bin/python -m pip install --quiet --no-compile "$@"; }
# torch first and by its exact version, so that a CPU wheel at hand is taken before anything else asks for torch.
install "$(grep '^torch==' constraints.txt)"
install --constraint constraints.txt --editable ".[$extras]"
# Once for all processes to come, also where PYTHONDONTWRITEBYTECODE would let each of them compile 3,000 modules again.
env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c "import compare.cli, compare.experiment.run, compare.report.html.page
import pandas, scipy.stats, torch._dynamo, torchtext.data.utils  # which are imported where they are needed"
