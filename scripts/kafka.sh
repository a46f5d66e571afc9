#!/usr/bin/env bash
# Runs Apache Kafka for tests, on this machine only: no container, no root. Needs Java 17; `install` needs Maven too.
#
#   kafka.sh install              download the jars, unless they are there
#   kafka.sh start DIR [BROKERS]  start brokers 1..BROKERS (default 1), or those of them that do not run; print their addresses
#   kafka.sh check                fail if the jars or Java are missing
#   kafka.sh run DIR [BROKERS]    start brokers in an empty directory; when standard input ends, kill them and remove it
#   kafka.sh stop DIR             ask all brokers to end, and wait for them
#   kafka.sh kill DIR [BROKER]    kill -9 one broker, or all; `start` brings them back with their data
#   kafka.sh pause DIR [BROKER]   stop one broker, or all, where they are; `resume` continues them
#
# DIR has the data and logs of the brokers. Environment:
#   KAFKA_JARS  directory of the jars (target/tools/kafka-VERSION)
#   KAFKA_PORT  first of two ports for each broker (29092)
#   KAFKA_DOORS further listeners of each broker (0), each for a proxy: it advertises the port above its own. For each door and each broker,
#               two ports follow those of the brokers
#   KAFKA_SECURE a file with a key and its certificate, as PEM: broker 1 listens with TLS and the user `feeds` with the password `secret`
#               as well, on the port after all others
set -euo pipefail

VERSION=4.3.1
root=$(cd "$(dirname "$0")/.." && pwd)
jars=${KAFKA_JARS:-${CARGO_TARGET_DIR:-$root/target}/tools/kafka-$VERSION}
port=${KAFKA_PORT:-29092}
doors=${KAFKA_DOORS:-0}
secure=${KAFKA_SECURE:-}
command=${1:-help} dir=${2:-} count=${3:-}

fail() {
    echo "kafka.sh: $*" >&2
    exit 1
}

if [[ $command =~ ^(start|run|stop|kill|pause|resume)$ ]]; then
    [ -n "$dir" ] || fail "$command needs a directory"
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
fi

# The jars appear under their name only when all of them are there.
install() {
    [ -d "$jars" ] && return
    local work
    work=$(mktemp -d)
    cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidewire</groupId><artifactId>test-broker</artifactId><version>0</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$VERSION</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" >&2 ||
        fail "Maven could not download the jars"
    mkdir -p "$(dirname "$jars")"
    rm -rf "$jars.new"
    mv "$work/jars" "$jars.new"
    mv "$jars.new" "$jars"
    rm -r "$work"
}

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
# A dead broker is replaced soon.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
# Groups may have short sessions, and do not wait for further members.
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

# Only the quick compiler, since a test waits for the start.
java=(java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -cp "$jars/*"
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS)

# Prints the process of a broker. A number is used only while its process has this broker's file among its arguments.
process() { # BROKER
    local pid
    pid=$(cat "$dir/$1/pid" 2>/dev/null) || return 0
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$dir/$1/server.properties"; then echo "$pid"; fi
}

send() { # SIGNAL BROKER
    local pid
    pid=$(process "$2")
    [ -z "$pid" ] || kill -s "$1" "$pid" 2>/dev/null || true
}

await_end() { # BROKER
    for _ in $(seq 300); do
        [ -n "$(process "$1")" ] || return 0
        sleep 0.05
    done
    fail "broker $1 does not end"
}

accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_one() { # BROKER BROKERS
    local home=$dir/$1
    [ -z "$(process "$1")" ] || return 0
    if ! [ -d "$home/data" ]; then
        mkdir -p "$home"
        settings "$1" "$2" >"$home/server.properties"
        # All brokers of the test have the same cluster id; other clusters are not reachable.
        "${java[@]}" kafka.tools.StorageTool format -t tidewire-test-clusterA -c "$home/server.properties" \
            --add-scram 'SCRAM-SHA-512=[name=feeds,password=secret]' >"$home/log" 2>&1 ||
            fail "broker $1 could not prepare its directory: $(tail -n 3 "$home/log")"
    fi
    # The kernel may hold the port of a killed broker for a moment.
    for _ in $(seq 50); do
        accepts "$(client_port "$1")" || break
        sleep 0.1
    done
    ! accepts "$(client_port "$1")" || fail "port $(client_port "$1") is in use"
    "${java[@]}" kafka.Kafka "$home/server.properties" >"$home/log" 2>&1 </dev/null &
    echo $! >"$home/pid"
    disown # or its death would be reported
}

start() { # BROKERS
    local one addresses=()
    [ -d "$jars" ] || fail "the jars are not in $jars: run kafka.sh install"
    # One of several brokers is ready only when most of them run: all are started before one is awaited.
    for one in $(seq "$1"); do start_one "$one" "$1"; done
    for one in $(seq "$1"); do
        await_ready "$one"
        addresses+=("127.0.0.1:$(client_port "$one")")
    done
    (IFS=,; echo "${addresses[*]}")
}

await_ready() { # BROKER
    local log=$dir/$1/log
    for _ in $(seq 600); do
        ! grep -q 'Kafka Server started' "$log" || return 0
        [ -n "$(process "$1")" ] || fail "broker $1 has ended: $(tail -n 20 "$log")"
        sleep 0.1
    done
    fail "broker $1 is not ready after a minute: $(tail -n 20 "$log")"
}

# The brokers that a command is for: the one that was named, or all.
named() {
    if [ -n "$count" ]; then echo "$count"; else find "$dir" -mindepth 2 -maxdepth 2 -name pid -printf '%h\n' | xargs -rn1 basename; fi
}

kill_all() {
    local one
    for one in $(named); do send KILL "$one"; done
    for one in $(named); do await_end "$one"; done
}

case $command in
install) install ;;
check) [ -d "$jars" ] && command -v java >/dev/null ;;
start) start "${count:-1}" ;;
run)
    [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty"
    brokers=${count:-1} count=
    trap 'kill_all; rm -rf "$dir"' EXIT
    trap 'exit 1' INT TERM
    start "$brokers"
    while read -r _; do :; done
    ;;
stop)
    for one in $(named); do send CONT "$one"; send TERM "$one"; done
    for one in $(named); do await_end "$one"; done
    ;;
kill) kill_all ;;
pause) for one in $(named); do send STOP "$one"; done ;;
resume) for one in $(named); do send CONT "$one"; done ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" ;;
esac
