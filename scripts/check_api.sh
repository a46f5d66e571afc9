#!/usr/bin/env bash
# Tests a running server against its own description, /openapi.json, with valid and many invalid requests, generated
# by schemathesis (https://schemathesis.readthedocs.io), which is installed into target/schemathesis. Needs Python 3.10 or newer.
#
#     scripts/check_api.sh [EXAMPLES]    # for each operation and phase [default: 20]
set -euo pipefail
cd "$(dirname "$0")/.."

examples=${1:-20}
place=$PWD/target/schemathesis
version=4.32.5
program=${TIDEWIRE_BIN:-$PWD/target/debug/tidewire}
config=$PWD/scripts/check_api.toml

if [ "$("$place/bin/schemathesis" --version 2>/dev/null || true)" != "schemathesis, version $version" ]; then
    python3 -m venv --clear "$place" && "$place/bin/pip" install --quiet "schemathesis==$version" ||
        { echo "check_api: cannot install schemathesis $version from PyPI" >&2; exit 1; }
fi
[ -x "$program" ] || { echo "check_api: $program does not exist: build it first" >&2; exit 1; }

work=$(mktemp -d)
env -i PATH="$PATH" "$program" serve --listen 127.0.0.1:0 --data-dir "$work/data" >"$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
url=
for _ in $(seq 150); do
    url=$(sed -nE 's|.*serving on (http://[0-9.:]+),.*|\1|p' "$work/log")
    [ -n "$url" ] && curl -sf "$url/readyz" >/dev/null && break
    sleep 0.2
done
curl -sSf "$url/readyz" >/dev/null || { cat "$work/log" >&2; exit 1; }

# Without access control, requests need no credentials. No pattern can express the characters that a name may have, so the generated
# names have only characters that every name may have.
curl -sSf "$url/openapi.json" | "$place/bin/python" -c '
import json, sys
described = json.load(sys.stdin)
for operations in described["paths"].values():
    for operation in operations.values():
        operation["security"] = []
schemas = described["components"]["schemas"]
of_names = schemas["TagName"]["pattern"].removeprefix("^").partition("{")[0]
for name in "SourceId", "TagName", "TopicName":
    schemas[name]["pattern"] = schemas[name]["pattern"].replace(of_names, "[A-Za-z0-9._:@~-]")
json.dump(described, sys.stdout)' >"$work/openapi.json"

# One worker, because with two the generated requests are not reproducible.
failed=0
cd "$work" # It leaves files in its working directory.
"$place/bin/schemathesis" --config-file "$config" run "$work/openapi.json" --url "$url" \
    --max-examples "$examples" --seed 1 --workers 1 --generation-database none --no-color || failed=$?
kill -0 "$server" 2>/dev/null || { echo "check_api: the server has stopped" >&2; cat "$work/log" >&2; exit 1; }
exit "$failed"
