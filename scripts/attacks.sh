#!/usr/bin/env bash
# Runs the tests that the attack list of docs/security.md names, each by its full name. Fails if one fails, or is not there.
# With a FILE that has what a run of all tests printed, nothing is run again.
set -euo pipefail
file=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."

mapfile -t tests < <(sed -n '/^## The attack list/,$p' docs/security.md | grep -o '`[a-z0-9_:]*::[a-z0-9_]*`' | tr -d '`' | sort -u)
if [ -z "$file" ]; then
    file=target/attacks.out
    cargo test --locked -p tidewire -p tidewire-server --lib --test it -- --exact "${tests[@]}" 2>&1 | tee "$file"
fi
for name in "${tests[@]}"; do
    grep -q "^test $name \.\.\. ok" "$file" || { echo "$name, which docs/security.md names, did not run, or failed"; exit 1; }
done
echo "the attack list: ${#tests[@]} tests passed"
