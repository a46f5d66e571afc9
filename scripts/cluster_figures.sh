#!/usr/bin/env bash
# Measures a cluster beside one node: starts one Kafka broker on this machine, runs `tidewire-load cluster`, and ends the broker.
# Arguments are passed on: `scripts/cluster_figures.sh --only publishes,pages`. Needs Java 17, and Maven the first time.
#
#   CLUSTER_BROKERS  number of brokers (1)
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo build --release -p tidewire-server -p tidewire-load --features tidewire-server/cluster
scripts/kafka.sh install
work=$(mktemp -d)
brokers=${CLUSTER_BROKERS:-1}

end() {
    trap - EXIT INT TERM
    scripts/kafka.sh kill "$work/kafka" || true
    rm -rf "$work"
}
trap end EXIT INT TERM

addresses=$(scripts/kafka.sh start "$work/kafka" "$brokers")
"${CARGO_TARGET_DIR:-target}/release/tidewire-load" cluster --kafka "$addresses" --replicas "$brokers" \
    --kafka-data "$work/kafka/1/data" "$@"
