#!/usr/bin/env bash
# A Python client generated from the running server's description: no warning, strict types, and used against that server.
# Needs python3 with venv, curl, and a built server: TIDEWIRE_PROGRAM, or target/debug/tidewire.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# = 0 ]; then
    exec ../with_server.sh ./check.sh generate
fi
url=$2 keyed=$3
target=$(cd ../../.. && pwd)/target/generated-python
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
if ! cmp -s requirements.txt "$target/venv/installed.txt"; then
    rm -rf "$target/venv"
    python3 -m venv "$target/venv"
    "$target/venv/bin/pip" install --quiet --no-deps -r requirements.txt
    cp requirements.txt "$target/venv/installed.txt"
fi
rm -rf "$target/out" && mkdir -p "$target/out"
# With `python -m`: the programs in bin/ contain the path of the environment, which changes if the clone is moved.
"$target/venv/bin/python" -m openapi_python_client generate --url "$url/openapi.json" --meta none --output-path "$target/out/tidewire_api" \
    --config config.yml --fail-on-warning 2>&1 | tee "$target/generate.log"
if grep -i warn "$target/generate.log"; then
    exit 1
fi
MYPYPATH=$target/out "$target/venv/bin/python" -m mypy --strict --cache-dir "$target/mypy" exercise.py "$target/out/tidewire_api"
PYTHONPATH=$target/out PYTHONDONTWRITEBYTECODE=1 "$target/venv/bin/python" -W error exercise.py "$url" "$keyed"
