#!/usr/bin/env bash
# Generates a TypeScript client from a running server's /openapi.json, and uses it against that server. Needs Node with npm.
# TIDEWIRE_PROGRAM is the server's program: target/debug/tidewire without it.
set -euo pipefail
program=$(realpath "${TIDEWIRE_PROGRAM:-$(dirname "$0")/../../../target/debug/tidewire}")
cd "$(dirname "$0")"

npm ci --silent
directory=$(mktemp -d)
log=$directory/log
"$program" serve --listen 127.0.0.1:0 --data-dir "$directory/data" 2>"$log" &
server=$!
trap 'kill "$server" && wait "$server" || true; rm -rf "$directory"' EXIT
for _ in $(seq 300); do
    TIDEWIRE_SERVER=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$log" | head -1) && break
    kill -0 "$server" || { cat "$log"; exit 1; }
    sleep 0.1
done
export TIDEWIRE_SERVER
curl -sSf --retry 30 --retry-delay 1 --retry-all-errors -o /dev/null "$TIDEWIRE_SERVER/readyz"

# A field with a default may be left out of a request.
warnings=$(npx openapi-typescript "$TIDEWIRE_SERVER/openapi.json" --default-non-nullable=false -o generated/tidewire.ts 2>&1 >/dev/null)
if grep -iE 'warn|error' <<<"$warnings" | grep -v '^npm warn'; then exit 1; fi
npx tsc
node --test --test-reporter=spec build/
