#!/bin/sh
# Measures the cost of consoles for the server: processor time of a release build with a small network, for a minute without a console and for
# a minute with ten. Each sends the requests of the page Overview every five seconds: `/v1/stats`, `/readyz`, `/v1/operations` and new
# samples of `/v1/stats/history`. Prints percentages of a core, and stops the server. Needs Python 3 and Linux.
#
#   scripts/console_cost.sh [SECONDS]      # per part [default: 60]; TIDEWIRE_BIN names another program
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
program=${TIDEWIRE_BIN:-}
if [ -z "$program" ]; then
    cargo build --release --quiet -p tidewire-server
    program=target/release/tidewire
fi
directory=$(mktemp -d)
server=
end() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$directory"
}
trap end EXIT
trap 'exit 130' INT TERM

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for name in $(env | sed -n 's/^\(TIDEWIRE_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
"$program" serve --listen "127.0.0.1:$port" --data-dir "$directory/data" 2>"$directory/log" &
server=$!

python3 - "$program" "$port" "$server" "$seconds" "$directory" <<'PYTHON' || { cat "$directory/log" >&2; exit 1; }
import http.client, json, os, subprocess, sys, threading, time

program, port, server, seconds, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
CONSOLES, EVERY = 10, 5
AUTHORS, POSTS, READERS, FOLLOWED, AWAKE = 100, 50, 2_000, 20, 500
TICKS = os.sysconf("SC_CLK_TCK")


class Connection:
    """A connection that stays open, like that of a browser."""

    def __init__(self):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path):
        self.http.request("GET", path, headers={"Accept": "*/*", "Accept-Encoding": "gzip, deflate, br, zstd"})
        answer = self.http.getresponse()
        body = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"GET {path}: {answer.status} {body[:200]}")
        coding = answer.getheader("Content-Encoding")
        return body, coding


def text(body, coding):
    if coding in (None, "identity"):
        return body
    if coding == "gzip":
        import gzip

        return gzip.decompress(body)
    raise SystemExit(f"this script cannot read {coding}")


def wait_until_ready():
    began = time.monotonic()
    while time.monotonic() - began < 60:
        try:
            return Connection().get("/readyz")
        except (OSError, SystemExit):
            time.sleep(0.1)
    raise SystemExit("the server is not ready after 60 s")


def fill():
    posts, follows = os.path.join(directory, "posts"), os.path.join(directory, "follows")
    with open(posts, "w") as file:
        for nth in range(AUTHORS * POSTS):
            file.write(json.dumps({"author": f"author-{nth % AUTHORS}", "body": {"text": f"post {nth} " + "word " * 20}}) + "\n")
    with open(follows, "w") as file:
        for reader in range(READERS):
            file.writelines(f"reader-{reader} author-{(reader * 7 + nth * 3) % AUTHORS}\n" for nth in range(FOLLOWED))
    url = f"http://127.0.0.1:{port}"
    for what, file in [("follows", follows), ("posts", posts)]:
        subprocess.run([program, "import", what, file, "--server", url], check=True, stdout=subprocess.DEVNULL)
    connection = Connection()
    for reader in range(AWAKE):
        connection.get(f"/v1/users/reader-{reader}/feed")


def used():
    """Processor seconds of the server since its start, user and system."""
    with open(f"/proc/{server}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percent():
    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return 100 * (used() - before) / (time.monotonic() - began)


class Console(threading.Thread):
    """The requests of an open Overview."""

    def __init__(self, nth):
        super().__init__(daemon=True)
        self.delay, self.opened, self.failure, self.asked = nth * EVERY / CONSOLES, threading.Event(), None, 0
        self.connection, self.next = Connection(), None

    def ask(self):
        for path in ["/v1/stats", "/readyz", "/v1/operations"]:
            self.connection.get(path)
        # Requests the whole hour once, and then newer samples.
        query = f"?since={self.next}" if self.next else ""
        # Only the simulation pays for decoding the response.
        self.next = json.loads(text(*self.connection.get(f"/v1/stats/history{query}")))["next"]
        self.asked += 4

    def run(self):
        try:
            time.sleep(self.delay)
            while True:
                self.ask()
                self.opened.set()
                time.sleep(EVERY)
        except BaseException as failure:
            self.failure = failure
            self.opened.set()


wait_until_ready()
fill()
# Lets the server finish the background work of the import.
time.sleep(10)
alone = percent()
consoles = [Console(nth) for nth in range(CONSOLES)]
for console in consoles:
    console.start()
for console in consoles:
    console.opened.wait()
before = sum(console.asked for console in consoles)
watched = percent()
asked = sum(console.asked for console in consoles) - before
for console in consoles:
    if console.failure:
        raise SystemExit(f"a console failed: {console.failure}")
print(f"no console:   {alone:.3f} % of a core")
print(f"{CONSOLES} consoles:  {watched:.3f} % of a core, {asked / seconds:.1f} requests a second")
print(f"difference:   {watched - alone:.3f} % of a core")
PYTHON
