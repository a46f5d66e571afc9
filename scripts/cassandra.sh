#!/usr/bin/env bash
# Runs Apache Cassandra for tests, on this machine only: no container, no root. Needs Java 11 or 17; `install` needs Maven too.
#
#   cassandra.sh install              download the jars, unless they are there
#   cassandra.sh start DIR [NODES]    start those of the nodes 1..NODES (default 1) that are not running; print their addresses
#   cassandra.sh check                fail if the jars or Java are missing
#   cassandra.sh run DIR [NODES]      start nodes in an empty directory; when standard input ends, kill them and remove it
#   cassandra.sh stop DIR             stop all nodes, and wait for their end
#   cassandra.sh kill DIR [NODE]      kill -9 one node, or all; `start` brings them back with their data
#   cassandra.sh pause DIR [NODE]     suspend one node, or all; `resume` continues them
#
# DIR has the data and logs of the nodes. Node N listens on 127.0.0.N only. Environment:
#   CASSANDRA_JARS    directory of the jars (target/tools/cassandra-VERSION)
#   CASSANDRA_PORT    port for clients (29042); the nodes use the next one among themselves
#   CASSANDRA_HEAP    memory of each node (256m)
#   CASSANDRA_SYNC    when a write is acknowledged: batch, after it is on disk, or periodic, the default of Cassandra: then kill -9 of a node may
#                     lose writes acknowledged in the last 100 ms, because the end of its log is marked only that often
#   CASSANDRA_DATACENTRES  number of datacentres, dc1, dc2 …, to which new nodes belong in turn (none: all are in datacenter1)
#   CASSANDRA_SECURE  a file with a key and its certificate, as PEM: nodes demand TLS, and the user `cassandra` with the password `cassandra`
#   CASSANDRA_CONF    further lines for cassandra.yaml of new nodes
set -euo pipefail

VERSION=5.0.9
root=$(cd "$(dirname "$0")/.." && pwd)
jars=${CASSANDRA_JARS:-${CARGO_TARGET_DIR:-$root/target}/tools/cassandra-$VERSION}
port=${CASSANDRA_PORT:-29042}
heap=${CASSANDRA_HEAP:-256m}
sync=${CASSANDRA_SYNC:-batch}
secure=${CASSANDRA_SECURE:-}
datacentres=${CASSANDRA_DATACENTRES:-}
command=${1:-help} dir=${2:-} count=${3:-}

what=node settings_file=cassandra.yaml before_settings=-Dcassandra.config=file:
# shellcheck source=scripts/test_servers.sh
. "$root/scripts/test_servers.sh"
prepare_directory "$command"

install() { install_jars "org.apache.cassandra:cassandra-all:$VERSION"; }

settings() { # NODE NODES
    local home=$dir/$1
    # Each node has an equal part of the ring, and knows it before it has met the others. With one token per node, -2^63 is not a token.
    cat <<SETTINGS
cluster_name: tidewire tests
num_tokens: 1
initial_token: $((-9223372036854775807 + 9223372036854775807 / $2 * ($1 - 1) * 2))
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
    - class_name: org.apache.cassandra.locator.SimpleSeedProvider
      parameters: [{seeds: "127.0.0.1:$((port + 1))"}]
listen_address: 127.0.0.$1
rpc_address: 127.0.0.$1
storage_port: $((port + 1))
native_transport_port: $port
endpoint_snitch: $([ -n "$datacentres" ] && echo GossipingPropertyFileSnitch || echo SimpleSnitch)
storage_compatibility_mode: NONE
data_file_directories: [$home/data/data]
commitlog_directory: $home/data/commitlog
hints_directory: $home/data/hints
saved_caches_directory: $home/data/saved_caches
cdc_raw_directory: $home/data/cdc_raw
commitlog_sync: $sync
$([ "$sync" = batch ] || echo "commitlog_sync_period: 10000ms")
commitlog_segment_size: 16MiB
commitlog_total_space: 256MiB
auto_snapshot: false
# Little memory: by default, these are fractions of the machine's memory.
memtable_allocation_type: heap_buffers
memtable_heap_space: 48MiB
memtable_offheap_space: 48MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
key_cache_size: 4MiB
counter_cache_size: 0MiB
prepared_statements_cache_size: 4MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
native_transport_max_threads: 16
SETTINGS
    if [ -n "$secure" ]; then
        cat <<SETTINGS
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
client_encryption_options:
    enabled: true
    optional: false
    keystore: $secure
    ssl_context_factory:
        class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
SETTINGS
    fi
    printf '%s\n' "${CASSANDRA_CONF:-}"
}

log_settings() {
    cat <<'SETTINGS'
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %c{0}: %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
  <logger name="org.apache.cassandra.service" level="INFO"/>
</configuration>
SETTINGS
}

# Internal packages of Java that Cassandra uses: from conf/jvm17-server.options of its distribution.
internals=()
for package in java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch java.management.rmi/com.sun.jmx.remote.internal.rmi \
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql java.base/java.lang.ref jdk.attach/sun.tools.attach \
    jdk.compiler/com.sun.tools.javac.file jdk.unsupported/sun.misc; do
    internals+=(--add-exports "$package=ALL-UNNAMED")
done
for package in java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref java.base/jdk.internal.reflect \
    java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.util.jar java.base/sun.nio.ch java.base/java.io \
    java.base/java.lang java.base/java.lang.reflect java.base/java.util java.base/java.nio jdk.management/com.sun.management.internal \
    jdk.compiler/com.sun.tools.javac; do
    internals+=(--add-opens "$package=ALL-UNNAMED")
done

start_one() { # NODE NODES
    local home=$dir/$1
    [ -z "$(process "$1")" ] || return 0
    if ! [ -e "$home/cassandra.yaml" ]; then
        mkdir -p "$home/data"
        log_settings >"$home/logback.xml"
        [ -z "$datacentres" ] || printf 'dc=dc%s\nrack=rack1\n' $((($1 - 1) % datacentres + 1)) >"$home/cassandra-rackdc.properties"
        settings "$1" "$2" >"$home/cassandra.yaml"
    fi
    await_free "127.0.0.$1" "$port"
    : >"$home/log" # it may contain the ready message of an earlier start
    # Only the quick compiler, because a test waits for the start. New nodes wait for each other only as long as one machine needs.
    java "-Xms$heap" "-Xmx$heap" -Xss256k -XX:MaxDirectMemorySize=128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -XX:+ExitOnOutOfMemoryError "-XX:ErrorFile=$home/crash.log" "-javaagent:$(ls "$jars"/jamm-*.jar)" "${internals[@]}" \
        -Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true -Djava.awt.headless=true \
        "$before_settings$home/cassandra.yaml" "-Dcassandra.storagedir=$home/data" "-Dcassandra.logdir=$home" \
        "-Dlogback.configurationFile=$home/logback.xml" -Dcassandra-foreground=yes -Dcassandra.ring_delay_ms=1000 \
        -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.superuser_setup_delay_ms=0 -Dcassandra.available_processors=2 \
        -cp "$home:$jars/*" org.apache.cassandra.service.CassandraDaemon >"$home/log" 2>&1 </dev/null &
    started "$1" $!
    disown # or the shell would report its death
}

await_accepted() { # NODE
    for _ in $(seq 300); do
        ! accepts "127.0.0.$1" "$port" || return 0
        sleep 0.1
    done
    fail "node $1 is not listening: $(tail -n 20 "$dir/$1/log")"
}

start() { # NODES
    local one addresses=()
    [ -d "$jars" ] || fail "the jars are not in $jars: run cassandra.sh install"
    for one in $(seq "$1"); do
        # One after another: a node that meets a changing ring waits for it.
        start_one "$one" "$1"
        await_ready "$one" 'Startup complete'
        await_accepted "$one"
        addresses+=("127.0.0.$one:$port")
    done
    (IFS=,; echo "${addresses[*]}")
}

run_command "$command"
