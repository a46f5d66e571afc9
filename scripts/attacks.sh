#!/usr/bin/env bash
# Runs the tests in the attack list of docs/security.md by their full names. Fails if one fails, or does not exist.
#
#     scripts/attacks.sh [OPTION]...    # options of `cargo test` [default: --locked]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- --locked
mapfile -t names < <(sed -n '/^## The attack list/,$p' docs/security.md | grep -o '`[a-z0-9_:]*::[a-z0-9_]*`' | tr -d '`' | sort -u)
found=$(cargo test "$@" --lib --test it --test server -- --exact "${names[@]}" --list --format terse)
for name in "${names[@]}"; do
    grep -qxF "$name: test" <<<"$found" || { echo "docs/security.md names a test that does not exist: $name"; exit 1; }
done
cargo test "$@" --no-fail-fast --lib --test it --test server -- --exact "${names[@]}"
echo "the attack list: ${#names[@]} tests passed"
