#!/usr/bin/env bash
# Runs the tests that the attack list of docs/security.md names, each by its full name. Fails if one fails, or does not exist.
#
#     scripts/attacks.sh [OPTION]...    # options of `cargo test` [default: --locked]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- --locked
mapfile -t names < <(sed -n '/^## The attack list/,$p' docs/security.md | grep -o '`[a-z0-9_:]*::[a-z0-9_]*`' | tr -d '`' | sort -u)
found=$(cargo test "$@" --lib --test it --test server -- --exact "${names[@]}" --list --format terse)
for name in "${names[@]}"; do
    grep -qxF "$name: test" <<<"$found" || { echo "there is no test $name, which docs/security.md names"; exit 1; }
done
cargo test "$@" --no-fail-fast --lib --test it --test server -- --exact "${names[@]}"
echo "the attack list: ${#names[@]} tests passed"
