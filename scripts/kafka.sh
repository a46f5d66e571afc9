#!/usr/bin/env bash
# Runs Apache Kafka for tests, on this machine only: no container, no root. Needs Java 17; `install` needs Maven too.
#
#   kafka.sh install              download the jars, unless they are there
#   kafka.sh start DIR [BROKERS]  start those of the brokers 1..BROKERS (default 1) that are not running; print their addresses
#   kafka.sh check                fail if the jars or Java are missing
#   kafka.sh run DIR [BROKERS]    start brokers in an empty directory; when standard input ends, kill them and remove it
#   kafka.sh stop DIR             stop all brokers, and wait for their end
#   kafka.sh kill DIR [BROKER]    kill -9 one broker, or all; `start` brings them back with their data
#   kafka.sh pause DIR [BROKER]   suspend one broker, or all; `resume` continues them
#
# DIR has the data and logs of the brokers. Environment:
#   KAFKA_JARS  directory of the jars (target/tools/kafka-VERSION)
#   KAFKA_PORT  first of two ports for each broker (29092)
#   KAFKA_DOORS further listeners of each broker (0), each for a proxy: it advertises the port above its own. For each door and each broker,
#               two ports follow those of the brokers
#   KAFKA_SECURE a file with a key and its certificate, as PEM: broker 1 also listens with TLS and the user `feeds` with the password `secret`,
#               on the port after all others
set -euo pipefail

VERSION=4.3.1
root=$(cd "$(dirname "$0")/.." && pwd)
jars=${KAFKA_JARS:-${CARGO_TARGET_DIR:-$root/target}/tools/kafka-$VERSION}
port=${KAFKA_PORT:-29092}
doors=${KAFKA_DOORS:-0}
secure=${KAFKA_SECURE:-}
command=${1:-help} dir=${2:-} count=${3:-}

what=broker settings_file=server.properties
# shellcheck source=scripts/test_servers.sh
. "$root/scripts/test_servers.sh"
prepare_directory "$command"

install() { install_jars "org.apache.kafka:kafka_2.13:$VERSION" org.slf4j:slf4j-simple:1.7.36; }

client_port() { echo $((port + 2 * $1 - 2)); }
controller_port() { echo $((port + 2 * $1 - 1)); }

settings() { # BROKER BROKERS
    local voters=() replicas=$(($2 < 3 ? $2 : 3)) one
    local listeners="CLIENTS://127.0.0.1:$(client_port "$1")" advertised protocols="CLIENTS:PLAINTEXT,CONTROL:PLAINTEXT" at
    advertised=$listeners
    for one in $(seq "$2"); do voters+=("$one@127.0.0.1:$(controller_port "$one")"); done
    for one in $(seq "$doors"); do
        at=$((port + 2 * ($2 * one + $1 - 1)))
        listeners+=",DOOR$one://127.0.0.1:$at" advertised+=",DOOR$one://127.0.0.1:$((at + 1))" protocols+=",DOOR$one:PLAINTEXT"
    done
    if [ -n "$secure" ]; then
        at=$((port + 2 * $2 * (1 + doors)))
        listeners+=",SECURE://127.0.0.1:$at" advertised+=",SECURE://localhost:$at" protocols+=",SECURE:SASL_SSL"
        cat <<SETTINGS
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=$secure
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
SETTINGS
    fi
    cat <<SETTINGS
node.id=$1
process.roles=broker,controller
controller.quorum.voters=$(IFS=,; echo "${voters[*]}")
controller.listener.names=CONTROL
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=$protocols
listeners=$listeners,CONTROL://127.0.0.1:$(controller_port "$1")
advertised.listeners=$advertised
log.dirs=$dir/$1/data
auto.create.topics.enable=false
# Replaces a dead broker soon.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
# Allows short sessions of groups, which do not wait for further members.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# Kafka's own topics: each partition is a file to open at every start.
offsets.topic.num.partitions=1
offsets.topic.replication.factor=$replicas
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=1
# The default buffer of the cleaner is half of the heap.
log.cleaner.dedupe.buffer.size=4194304
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
file.delete.delay.ms=100
num.io.threads=4
num.network.threads=2
SETTINGS
}

# Only the quick compiler, because a test waits for the start.
java=(java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -cp "$jars/*"
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS)

start_one() { # BROKER BROKERS
    local home=$dir/$1
    [ -z "$(process "$1")" ] || return 0
    if ! [ -d "$home/data" ]; then
        mkdir -p "$home"
        settings "$1" "$2" >"$home/server.properties"
        # All brokers of the test have the same cluster id, because other clusters are not reachable.
        "${java[@]}" kafka.tools.StorageTool format -t tidewire-test-clusterA -c "$home/server.properties" \
            --add-scram 'SCRAM-SHA-512=[name=feeds,password=secret]' >"$home/log" 2>&1 ||
            fail "cannot prepare the directory of broker $1: $(tail -n 3 "$home/log")"
    fi
    await_free 127.0.0.1 "$(client_port "$1")"
    : >"$home/log" # it may contain the ready message of an earlier start
    "${java[@]}" kafka.Kafka "$home/server.properties" >"$home/log" 2>&1 </dev/null &
    started "$1" $!
    disown # or the shell would report its death
}

start() { # BROKERS
    local one addresses=()
    [ -d "$jars" ] || fail "the jars are not in $jars: run kafka.sh install"
    # A broker is ready only when most of them run, so all start before the script waits for one.
    for one in $(seq "$1"); do start_one "$one" "$1"; done
    for one in $(seq "$1"); do
        await_ready "$one" 'Kafka Server started'
        addresses+=("127.0.0.1:$(client_port "$one")")
    done
    (IFS=,; echo "${addresses[*]}")
}

run_command "$command"
