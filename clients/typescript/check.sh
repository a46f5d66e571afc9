#!/usr/bin/env bash
# Builds and checks the package, packs a clean copy of it as the documentation says, installs it into an empty directory, and
# tests it there against the server that TIDEWIRE_PROGRAM names, else target/debug/tidewire. Needs Node 20 or newer, npm
# and Chromium.
set -euo pipefail
cd "$(dirname "$0")"

export TIDEWIRE_PROGRAM=${TIDEWIRE_PROGRAM:-$(cd ../.. && pwd)/target/debug/tidewire}
export TIDEWIRE_WITHOUT_METHOD=${TIDEWIRE_WITHOUT_METHOD:-$(cd .. && pwd)/without-method.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

npm ci
npm run build
npm run check

# The files of a fresh clone, without build results.
clone=$work/clone
mkdir -p "$clone/clients/typescript"
tar -c --exclude ./node_modules --exclude ./dist --exclude '*.tgz' . | tar -x -C "$clone/clients/typescript"
documented=$(grep -m 1 '^(cd clients/typescript' ../../docs/client-typescript.md)
(cd "$clone" && bash -euc "$documented")
mv "$clone"/clients/typescript/tidewire-*.tgz "$work"
# Reads the whole list, because grep -q would end tar early.
packed=$(tar -tzf "$work"/tidewire-*.tgz)
grep -qx package/dist/index.js <<<"$packed" || { echo "the package has no dist/index.js" >&2; exit 1; }

# A program of a user without this repository.
cp .npmrc "$work"
cd "$work"
echo '{ "name": "program", "private": true, "type": "module" }' >package.json
lock=$OLDPWD/package-lock.json
ws=$(node -p 'JSON.parse(fs.readFileSync(process.argv[1])).packages["node_modules/ws"].version' "$lock")
npm install --prefer-offline ./tidewire-*.tgz "ws@$ws"
[ "$(ls node_modules)" = $'tidewire\nws' ] || { echo "the package installs others: $(ls node_modules)" >&2; exit 1; }
cp -r "$OLDPWD/test" "$OLDPWD/examples" .
node --test --test-timeout=180000 test/*.test.mjs
