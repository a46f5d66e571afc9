#!/usr/bin/env bash
# Compares a cluster with one node: starts one Kafka broker on this machine, runs `tidewire-load cluster`, and stops the broker.
# Passes its arguments on: `scripts/cluster_figures.sh --only publishes,pages`. Needs Java 17, and Maven at the first run.
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
