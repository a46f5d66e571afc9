#!/usr/bin/env bash
# Clients of Redis as they are released, against two servers: one without keys, and one with a server key.
# Needs redis-tools, python3 with venv, Node 20 or newer with npm, Go, a JDK, Maven, and a built server: TIDEWIRE_PROGRAM, or
# target/debug/tidewire.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
target=$root/target/redis-clients
program=${TIDEWIRE_PROGRAM:-$root/target/debug/tidewire}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 GOFLAGS=-mod=readonly
[ -x "$program" ] || { echo "no server at $program: build it first"; exit 1; }
mkdir -p "$target"

echo "-- install the clients"
if ! cmp -s python/requirements.txt "$target/python/installed.txt"; then
    rm -rf "$target/python"
    python3 -m venv "$target/python"
    "$target/python/bin/pip" install --quiet --no-deps -r python/requirements.txt
    cp python/requirements.txt "$target/python/installed.txt"
fi
(cd javascript && npm ci --silent)
(cd go && go vet . && go build -o "$target/go" .)
if ! cmp -s java/pom.xml "$target/jars/pom.xml"; then
    rm -rf "$target/jars"
    mvn -q -B -f java/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$target/jars"
    cp java/pom.xml "$target/jars"
fi
javac -d "$target/classes" -cp "$target/jars/*" java/*.java

folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

# Starts a server, and sets `port` to its port of the Redis protocol.
start() { # NAME [OPTION]...
    local log=$folder/$1.log
    : >"$log"
    env -i PATH="$PATH" "$program" serve --listen 127.0.0.1:0 --resp 127.0.0.1:0 --data-dir "$folder/$1" "${@:2}" >"$log" 2>&1 &
    pids+=($!)
    for _ in $(seq 600); do
        port=$(sed -n 's|.* redis://127\.0\.0\.1:||p' "$log")
        # It opens the port before it has recovered its data.
        [ -z "$port" ] || ! redis-cli -p "$port" INFO | grep -q '^loading:0' || return 0
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log"
    exit 1
}

redis_tools() { # PORT [KEY]
    local version post page
    local -x REDISCLI_AUTH=${2:-}
    for version in 2 3; do
        redis-cli -e "-$version" -p "$1" FEED.FOLLOW ann bob >/dev/null
        post=$(redis-cli -e "-$version" -p "$1" FEED.POST bob '{"text":"hi"}' WAIT)
        page=$(redis-cli -e "-$version" -p "$1" FEED.GET ann COUNT 1)
        [[ $page == *"$post"* ]] || { echo "redis-cli: $page does not have $post"; exit 1; }
        echo "redis-cli, RESP$version: ok"
    done
    # Without the line of its progress. It warns that the server refuses CONFIG, and ends at the first other error.
    redis-benchmark -p "$1" ${2:+-a "$2"} -q -n 2000 -c 8 -P 4 FEED.GET ann COUNT 20 2>&1 | tr '\r' '\n' |
        sed 's/.*(overall: [^)]*) *//' | grep '[^ ]' | tee "$folder/benchmark"
    grep -q 'requests per second' "$folder/benchmark" && ! grep -qi error "$folder/benchmark"
}

check() { # PORT [KEY]
    redis_tools "$@"
    "$target/python/bin/python" -W error python/check.py "$@"
    node javascript/check.js "$@"
    "$target/go" "$@"
    java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$target/classes:$target/jars/*" Check "$@"
}

echo "-- without keys"
start open
check "$port"
echo "-- with a server key"
key=$(umask 077 && "$program" key clients --access "$folder/access.toml")
start keyed --access "$folder/access.toml"
check "$port" "$key"
