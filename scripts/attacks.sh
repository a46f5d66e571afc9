#!/usr/bin/env bash
# Runs the tests that the attack list of docs/security.md names, each by its full name. Fails if one fails, or is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t tests < <(sed -n '/^## The attack list/,$p' docs/security.md | grep -o '`[a-z0-9_:]*::[a-z0-9_]*`' | tr -d '`' | sort -u)
began=$SECONDS
cargo test --locked -p tidewire -p tidewire-server --lib --test it -- --exact "${tests[@]}" 2>&1 | tee target/attacks.out
passed=$(awk '/^test result:/ { passed += $4 } END { print passed + 0 }' target/attacks.out)
for name in "${tests[@]}"; do
    grep -q "^test $name \.\.\. ok" target/attacks.out || { echo "$name, which docs/security.md names, did not run"; exit 1; }
done
echo "the attack list: $passed tests of ${#tests[@]} names passed in $((SECONDS - began)) s, with what had to be built"
