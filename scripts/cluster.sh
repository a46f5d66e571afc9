#!/usr/bin/env bash
# Tries a cluster on this machine: one Kafka broker and three nodes on loopback addresses. Ends them with Ctrl-C, or when standard input ends.
# Needs Java 17; the first start needs Maven too, for the jars of Kafka.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo build --release -p tidewire-server --features cluster
scripts/kafka.sh install
program=${CARGO_TARGET_DIR:-$root/target}/release/tidewire
work=$(mktemp -d)
nodes=()

end() {
    trap - EXIT INT TERM
    [ ${#nodes[@]} -eq 0 ] || kill "${nodes[@]}" 2>/dev/null || true
    [ ${#nodes[@]} -eq 0 ] || wait "${nodes[@]}" 2>/dev/null || true
    scripts/kafka.sh stop "$work/kafka" || true
    rm -rf "$work"
}
trap end EXIT INT TERM

brokers=$(scripts/kafka.sh start "$work/kafka" 1)
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/key"
"$program" cluster init --cluster try --kafka "$brokers" --replicas 1
for n in 1 2 3; do
    "$program" serve --listen 127.0.0.$n:8080 --cluster try --kafka "$brokers" --node node-$n \
        --advertise http://127.0.0.$n:8080 --cluster-key-file "$work/key" 2>"$work/node-$n.log" &
    nodes+=($!)
done
for n in 1 2 3; do
    until curl -fsS "http://127.0.0.$n:8080/readyz" >/dev/null 2>&1; do
        kill -0 "${nodes[$((n - 1))]}" 2>/dev/null || { cat "$work/node-$n.log" >&2; exit 1; }
        sleep 0.1
    done
done
sleep 1
"$program" cluster status --server http://127.0.0.1:8080
cat <<TEXT

Three nodes answer at http://127.0.0.1:8080, http://127.0.0.2:8080 and http://127.0.0.3:8080. Try:

  curl -X PUT 127.0.0.1:8080/v1/users/ann/following/bob
  curl -X POST 127.0.0.2:8080/v1/posts -H 'Content-Type: application/json' -d '{"author":"bob","body":{"text":"hello"}}'
  curl -i 127.0.0.3:8080/v1/users/ann/feed
  kill -9 ${nodes[0]}      # node-1; the others go on

Ctrl-C ends all of it.
TEXT
cat >/dev/null
