#!/usr/bin/env bash
# The Python client: types, generated files, tests against the real server, and the packages, installed into an empty environment.
# Needs python3 with venv, and a built server: TIDEWIRE_PROGRAM, or target/debug/tidewire.
set -euo pipefail
cd "$(dirname "$0")"
target=$(cd ../.. && pwd)/target/python
export TIDEWIRE_PROGRAM=${TIDEWIRE_PROGRAM:-$(cd ../.. && pwd)/target/debug/tidewire}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
[ -x "$TIDEWIRE_PROGRAM" ] || { echo "no server at $TIDEWIRE_PROGRAM: build it first"; exit 1; }

# Installs the packages of a list into an environment, unless they are installed.
environment() {
    local folder=$1 list=$2
    if ! cmp -s "$list" "$folder/installed.txt"; then
        rm -rf "$folder"
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --no-deps -r "$list"
        cp "$list" "$folder/installed.txt"
    fi
}

mkdir -p "$target"
environment "$target/dev" requirements-dev.txt
dev=$target/dev/bin

echo "-- lint, types and generated files"
# With `python -m`: the programs in bin/ contain the path of the environment, which changes if the clone is moved.
"$dev/python" -m ruff check --quiet --cache-dir "$target/ruff" .
"$dev/python" -m ruff format --quiet --check --cache-dir "$target/ruff" .
MYPYPATH=src:tests "$dev/python" -m mypy --cache-dir "$target/mypy" src examples tests ../../examples/tag_counts.py
"$dev/python" generate_sync.py --check

echo "-- build"
rm -rf "$target/dist" "$target/empty"
"$dev/python" -m build --no-isolation --outdir "$target/dist" . >"$target/build.log" 2>&1 || { cat "$target/build.log"; exit 1; }
ls "$target/dist"

echo "-- install into an empty environment, and test there"
python3 -m venv "$target/empty"
# The versions are those of the list. Only pytest and its workers are not dependencies of the package.
"$target/empty/bin/pip" install --quiet --constraint requirements-dev.txt "$target"/dist/tidewire-*.whl pytest pytest-xdist
"$target/empty/bin/pip" check
rm -rf "$target/from-sdist" && mkdir "$target/from-sdist"
tar -xzf "$target"/dist/tidewire-*.tar.gz -C "$target/from-sdist" --strip-components 1
# The tests of the source package, with the installed wheel: not with the files beside them.
rm -rf "$target/from-sdist/src"
cd "$target/from-sdist"
"$target/empty/bin/python" -c 'import sys, tidewire; assert tidewire.__file__.startswith(sys.prefix), tidewire.__file__'
# Files outside of this package: examples that use it, the list of operations without a method, the names of the other client.
clients=$target/../../clients
export TIDEWIRE_EXAMPLES=$target/../../examples TIDEWIRE_WITHOUT_METHOD=$clients/without-method.json
export TIDEWIRE_TYPESCRIPT_NAMES=$clients/names.json
# The tests mostly wait, so three workers run them at once.
"$target/empty/bin/python" -m pytest -p no:cacheprovider --durations 3 --numprocesses 3

echo "-- with the lowest versions that the package allows"
# Reads, writes, and live feeds and changes that resume, by both clients: these use most of the two libraries.
lowest=(tests/test_contract.py tests/test_live.py tests/test_changes.py)
python=python3
if python3.10 --version >/dev/null 2>&1; then
    # The newest version of websockets needs a later Python, so all tests run with these versions.
    python=python3.10
    lowest=()
else
    echo "skipped Python 3.10: python3.10 is not installed"
fi
grep -vE '^(httpx|websockets)==' requirements-dev.txt | cat requirements-lowest.txt - >"$target/lowest-constraints.txt"
rm -rf "$target/lowest"
"$python" -m venv "$target/lowest"
"$target/lowest/bin/pip" install --quiet --constraint "$target/lowest-constraints.txt" "$target"/dist/tidewire-*.whl pytest pytest-xdist
"$target/lowest/bin/python" - <<'END'
from importlib.metadata import requires, version
from packaging.requirements import Requirement

for each in map(Requirement, requires("tidewire")):
    [lowest] = [bound.version for bound in each.specifier if bound.operator == ">="]
    assert version(each.name) == lowest, f"{each.name}: the lowest tested version is {version(each.name)}, but {lowest} is allowed"
END
"$target/lowest/bin/python" -m pytest -p no:cacheprovider --numprocesses 3 "${lowest[@]}"
