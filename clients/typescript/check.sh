#!/usr/bin/env bash
# Builds and checks the package, packs it, installs it into an empty directory, and tests it there against the server that
# TIDEWIRE_PROGRAM names, else target/debug/tidewire. Needs Node 20 or newer and npm.
set -euo pipefail
cd "$(dirname "$0")"

export TIDEWIRE_PROGRAM=${TIDEWIRE_PROGRAM:-$(cd ../.. && pwd)/target/debug/tidewire}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

npm ci
npm run build
npm run check
npm pack --pack-destination "$work" --loglevel=error

# A program of somebody who has nothing of this repository.
cp .npmrc "$work"
cd "$work"
echo '{ "name": "program", "private": true, "type": "module" }' >package.json
lock=$OLDPWD/package-lock.json
ws=$(node -p 'JSON.parse(fs.readFileSync(process.argv[1])).packages["node_modules/ws"].version' "$lock")
npm install --prefer-offline ./tidewire-*.tgz "ws@$ws"
[ "$(ls node_modules)" = $'tidewire\nws' ] || { echo "the package brings others: $(ls node_modules)" >&2; exit 1; }
cp -r "$OLDPWD/test" test
node --test --test-timeout=180000 test/*.test.mjs
