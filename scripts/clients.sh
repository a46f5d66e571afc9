#!/usr/bin/env bash
# Builds clients, installs them into an empty environment as programs do, and tests them against a real server.
#
#     scripts/clients.sh [NAME]...    # folders of clients/ with a check.sh [default: all]
#
# The server is target/debug/tidewire, or the program that TIDEWIRE_PROGRAM names.
set -euo pipefail
cd "$(dirname "$0")/.."

export TIDEWIRE_PROGRAM=${TIDEWIRE_PROGRAM:-$PWD/target/debug/tidewire}
[ -x "$TIDEWIRE_PROGRAM" ] || { echo "clients: $TIDEWIRE_PROGRAM does not exist: build it first" >&2; exit 1; }

[ $# -gt 0 ] || set -- $(cd clients && ls -- */check.sh generated/*/check.sh | xargs -n 1 dirname)
for client; do
    [ -x "clients/$client/check.sh" ] || { echo "clients: unknown client $client" >&2; exit 2; }
    echo "== client for $client"
    "clients/$client/check.sh"
done
