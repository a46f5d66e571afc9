#!/usr/bin/env bash
# Compares feed pages of Tidewire and of Redis by another client than the load tool: redis-benchmark, of Debian's package redis-tools. Starts
# both servers on 127.0.0.1 with the same 300 posts in the feed of one reader, prints requests and pages per second, and stops them. A page of
# Redis is two requests: LRANGE for 20 ids, then MGET for their posts. Also needs redis-server and Python 3.
#
#   scripts/redis_benchmark.sh [PROGRAM [REQUESTS]]     # [default: a release build, 200000 of each kind]
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-} requests=${2:-200000}
clients=32 posts=300 page=20
if [ -z "$program" ]; then
    cargo build --release --quiet -p tidewire-server
    program=${CARGO_TARGET_DIR:-target}/release/tidewire
fi
directory=$(mktemp -d)
servers=()
end() {
    # Nobody needs their data. The shell would report the signal.
    { [ ${#servers[@]} = 0 ] || kill -KILL "${servers[@]}" || true; wait; } 2>/dev/null
    rm -rf "$directory"
}
trap end EXIT
trap 'exit 130' INT TERM

fail() {
    echo "redis_benchmark.sh: $*" >&2
    exit 1
}

ask() { # PORT [WORD...]     without words: the commands in the standard input
    timeout 60 redis-cli -h 127.0.0.1 -p "$1" "${@:2}"
}

await() { # NAME PORT TEXT WORD...     until the reply contains the text
    for _ in $(seq 300); do
        [[ $(ask "$2" "${@:4}" 2>/dev/null) != *"$3"* ]] || return 0
        sleep 0.1
    done
    fail "$1 is not ready after 30 s: $(tail -n 20 "$directory/$1.log")"
}

read -r http resp redis < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(3)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))')
# Without the settings of the caller.
env -i "$program" serve --listen "127.0.0.1:$http" --resp "127.0.0.1:$resp" --data-dir "$directory/data" >"$directory/tidewire.log" 2>&1 &
servers+=($!)
redis-server --bind 127.0.0.1 --port "$redis" --dir "$directory" --save '' --appendonly no >"$directory/redis.log" 2>&1 &
servers+=($!)
await tidewire "$resp" '"items"' FEED.GET r1
await redis "$redis" PONG PING

# The same posts on both sides, each with a body of about 100 bytes.
for source in $(seq 20); do echo "FEED.FOLLOW r1 a$source"; done >"$directory/to-tidewire"
for id in $(seq $posts); do
    author=a$((id % 20 + 1))
    body="{\"text\":\"Post $id says what a post says on an ordinary day: not much, in a hundred bytes or so of text.\"}"
    echo "FEED.POST $author '$body' ID $id WAIT" >>"$directory/to-tidewire"
    printf '%s\n' "SET post:$id '{\"id\":\"$id\",\"author\":\"$author\",\"published_at\":$id,\"body\":$body}'" "LPUSH tl $id" >>"$directory/to-redis"
done
ask "$resp" <"$directory/to-tidewire" >"$directory/replies"
ask "$redis" <"$directory/to-redis" >"$directory/replies"
mapfile -t ids < <(ask "$redis" LRANGE tl 0 $((page - 1)))
mapfile -t keys < <(printf 'post:%s\n' "${ids[@]}")
in_page() { grep -o '"id":"[0-9]*"'; }
of_tidewire=$(ask "$resp" FEED.GET r1 COUNT $page | in_page) of_redis=$(ask "$redis" MGET "${keys[@]}" | in_page)
[ ${#ids[@]} = $page ] && [ "$of_tidewire" = "$of_redis" ] || fail "the pages differ: ${of_tidewire//$'\n'/ } and ${of_redis//$'\n'/ }"

# Prints requests per second. Without CONFIG GET, redis-benchmark prints a warning and goes on.
rate() { # PORT PIPELINE WORD...
    timeout 600 redis-benchmark -h 127.0.0.1 -p "$1" -c $clients -P "$2" -n "$requests" --csv "${@:3}" | awk -F '","' 'END { print $2 }'
}

row='%-10s %12s %12s %12s %18s %15s %8s\n'
echo "$clients clients, $requests requests of each kind, per second:"
# shellcheck disable=SC2059
printf "$row" pipeline FEED.GET LRANGE MGET "Tidewire: pages" "Redis: pages" ratio
for pipeline in 1 16; do
    feed=$(rate "$resp" $pipeline FEED.GET r1 COUNT $page)
    range=$(rate "$redis" $pipeline LRANGE tl 0 $((page - 1)))
    mget=$(rate "$redis" $pipeline MGET "${keys[@]}")
    awk -v row="$row" -v pipeline=$pipeline -v feed="$feed" -v range="$range" -v mget="$mget" 'BEGIN {
        if (feed <= 0 || range <= 0 || mget <= 0) { print "no rate: " feed ", " range ", " mget; exit 1 }
        pages = 1 / (1 / range + 1 / mget)
        printf row, pipeline, int(feed), int(range), int(mget), int(feed), int(pages), sprintf("%.2fx", feed / pages)
    }'
done
