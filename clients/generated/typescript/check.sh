#!/usr/bin/env bash
# A TypeScript client generated from the running server's description: no warning, strict types, and used against that server.
# Needs Node 20 or newer with npm, curl, and a built server: TIDEWIRE_PROGRAM, or target/debug/tidewire.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# = 0 ]; then
    npm ci --silent
    exec ../with_server.sh ./check.sh generate
fi
export TIDEWIRE_SERVER=$2
rm -rf generated build
# A field with a default may be left out of a request.
npx openapi-typescript "$TIDEWIRE_SERVER/openapi.json" --default-non-nullable=false -o generated/tidewire.ts 2>&1 | tee generate.log
if grep -v '^npm warn' generate.log | grep -iE 'warn|error'; then
    exit 1
fi
npx tsc
node --test --test-reporter=spec build/
