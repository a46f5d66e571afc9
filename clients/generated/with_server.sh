#!/usr/bin/env bash
# Runs a command with the addresses of two servers as its last words: one without keys, and one with a key that nobody has.
set -euo pipefail
program=${TIDEWIRE_PROGRAM:-$(cd "$(dirname "$0")/../.." && pwd)/target/debug/tidewire}
[ -x "$program" ] || { echo "no server at $program: build it first"; exit 1; }
folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
start() {
    local name=$1 port=$2
    shift 2
    env -i PATH="$PATH" "$program" serve --listen "127.0.0.1:$port" --data-dir "$folder/$name" "$@" >"$folder/$name.log" 2>&1 &
    pids+=($!)
    for _ in $(seq 600); do
        curl -sf "http://127.0.0.1:$port/readyz" >/dev/null && return
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    cat "$folder/$name.log"
    exit 1
}

printf '[[server-key]]\nname = "nobody"\nsha256 = "%064d"\n' 1 >"$folder/access.toml"
chmod 600 "$folder/access.toml"
open=$(free_port)
start open "$open"
keyed=$(free_port)
start keyed "$keyed" --access "$folder/access.toml"
"$@" "http://127.0.0.1:$open" "http://127.0.0.1:$keyed"
