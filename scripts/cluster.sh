#!/usr/bin/env bash
# Runs a cluster on this machine: one Kafka broker and three nodes on loopback addresses, until Ctrl-C or the end of standard input.
# Needs Java 17; the first start also needs Maven for the jars of Kafka.
#
#   CLUSTER_PROGRAM  a server with the feature `cluster` [default: builds one]
set -euo pipefail
[ $# -eq 0 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ -n "${CLUSTER_PROGRAM:-}" ] || cargo build --release -p tidewire-server --features cluster
scripts/kafka.sh install
program=${CLUSTER_PROGRAM:-${CARGO_TARGET_DIR:-$root/target}/release/tidewire}
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
# A small network, with each request to the next node: ten readers who follow two of five authors each.
ask() { # METHOD PATH [BODY]
    asked=$((${asked:-0} % 3 + 1))
    curl -fsS -X "$1" "http://127.0.0.$asked:8080$2" ${3:+-H 'Content-Type: application/json' -d "$3"} >/dev/null
}
authors=(bob cas eve ida yul)
for n in 0 1 2 3 4 5 6 7 8 9; do
    ask PUT "/v1/users/reader-$n/following/${authors[$((n % 5))]}"
    ask PUT "/v1/users/reader-$n/following/${authors[$(((n + 1) % 5))]}"
done
for n in $(seq 20); do
    ask POST /v1/posts "{\"author\":\"${authors[$((n % 5))]}\",\"body\":{\"text\":\"post $n\"}}"
done
"$program" cluster status --server http://127.0.0.1:8080
cat <<TEXT

Three nodes answer at http://127.0.0.1:8080, http://127.0.0.2:8080 and http://127.0.0.3:8080, each with its console:
http://127.0.0.1:8080/console/readers?user=reader-1. Try:

  curl -X PUT 127.0.0.1:8080/v1/users/ann/following/bob
  curl -X POST 127.0.0.2:8080/v1/posts -H 'Content-Type: application/json' -d '{"author":"bob","body":{"text":"hello"}}'
  curl -i 127.0.0.3:8080/v1/users/ann/feed
  kill -9 ${nodes[0]}      # node-1; the others continue

Ctrl-C stops everything.
TEXT
cat >/dev/null
