# Functions of the scripts for packages. The checks run as root in their own namespaces: mounts, processes, network.

say() { printf -- '-- %s\n' "$*"; }
fail() { [ ! -s "${log:-/nonexistent}" ] || tail -n 20 "$log" >&2; printf 'error: %s\n' "$*" >&2; exit 1; }

# The names of the packages in a directory. Other files there do not belong to a release, whatever their names are.
release_files() { # DIR
    find "$1" -maxdepth 1 -type f \( -name 'tidewire-*-x86_64-linux.tar.gz' -o -name 'tidewire-*-x86_64-linux-debug.tar.gz' -o -name 'tidewire-*-x86_64-linux.cdx.json' \
        -o -name 'tidewire_*_amd64.deb' -o -name 'tidewire-*-image.tar*' \) -printf '%f\n' | sort
}

# Requires that a program reveals neither the folders of its builder, nor the registry of its crates.
names_no_folder_of_the_compilation() { # PROGRAM
    local home each
    home=$(realpath -ms "${HOME:-/}")
    for each in "$home" "$PWD" "$(realpath -m "${CARGO_HOME:-$home/.cargo}")" registry/src; do
        # The home of some accounts is the root of the file system, which with a slash would match every URL.
        [ "$each" = / ] || ! grep -qaF -- "$each/" "$1" || fail "the program reveals where it was compiled: $each/"
    done
}

# Runs a command until it succeeds, for at most a minute.
until_ok() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "not within a minute: $*"
        sleep 0.1
    done
}

# Requires an exit code, and a text in the output of a command. The command may run up to three times, because buildah sometimes loses
# the output of a program at its end.
expect() { # CODE TEXT COMMAND...
    local code=$1 text=$2 said got
    shift 2
    for _ in 1 2 3; do
        got=0
        said=$("$@" 2>&1) || got=$?
        [ "$got" = "$code" ] || fail "$* ended with $got, not $code: $said"
        ! grep -qF -- "$text" <<<"$said" || return 0
    done
    fail "$* did not print '$text': $said"
}

# Brings up the loopback interface of the new network, and mounts memory at $work: nothing remains after the namespaces end.
begin() {
    ip link set lo up
    mount -t tmpfs tmpfs "$work"
    log=$work/server.log
}

# Mounts a copy of a root at $work/root. Changes to it disappear with the namespaces.
copy_of_root() { # ROOT
    mkdir "$work/upper" "$work/scratch" "$work/root"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$work/upper,workdir=$work/scratch" "$work/root"
    mount -t proc proc "$work/root/proc"
    mount --rbind /dev "$work/root/dev"
    mount -t tmpfs tmpfs "$work/root/tmp"
    in_root() {
        chroot "$work/root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
    }
}

# Prints the HTTP status of a request.
status() { # KEY PATH [HOST]
    curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "http://${3:-127.0.0.1}:8080$2"
}

publish() { # KEY TEXT
    curl -sS -f -o /dev/null -H "Authorization: Bearer $1" -H 'Content-Type: application/json' \
        -d "{\"author\":\"bob\",\"body\":\"$2\"}" 'http://127.0.0.1:8080/v1/posts?wait=delivered' || fail "cannot publish $2"
}

# Requires a post of bob with this text.
has_post() { # KEY TEXT
    curl -sS -f -H "Authorization: Bearer $1" http://127.0.0.1:8080/v1/users/bob/posts | grep -qF "\"$2\"" ||
        fail "the post '$2' is gone"
}

# Stops the server gracefully, and requires exit code 0.
stop() {
    local ended=0
    kill -TERM "$server"
    wait "$server" || ended=$?
    [ $ended = 0 ] || fail "the server ended with $ended"
}

# Uses a container as documented: init, serve on all addresses, health, a restart. $container is a command that runs the
# program in it with the settings of the image, $server_container one that serves meanwhile, $config their /etc/tidewire as seen from
# outside; `stop_container` stops the server.
use_container() {
    local metrics_key
    expect 1 "tidewire init" "${container[@]}" serve
    expect 1 "tidewire init" "${container[@]}" health
    key=$("${container[@]}" init --listen 0.0.0.0:8080 2>"$work/init.err") || fail "init: $(cat "$work/init.err")"
    [[ $key =~ ^[A-Za-z0-9_-]{20,}$ ]] || fail "init printed no key on its standard output: $key"
    grep -qF "serve --config /etc/tidewire/tidewire.toml" "$work/init.err" || fail "init does not print the next command"
    expect 1 "files are not overwritten" "${container[@]}" init
    [ "$(stat -c '%a %u:%g' "$config/access.toml")" = "600 65532:65532" ] || fail "others can read the access file"
    [ "$(stat -c '%a %u:%g' "$config/metrics.key")" = "640 65532:65532" ] || fail "Prometheus cannot read its key"
    metrics_key=$(cat "$config/metrics.key")
    # It does not serve without keys, for any flags.
    sed -i.keys '/^access/d' "$config/tidewire.toml"
    expect 2 "--access FILE" "${container[@]}" serve
    mv "$config/tidewire.toml.keys" "$config/tidewire.toml"

    "${server_container[@]}" serve >"$log" 2>&1 &
    server=$!
    until_ok "${container[@]}" health
    # On an address other than that of the health check.
    [ "$(status "$key" /v1/stats 127.0.0.2)" = 200 ] || fail "the server does not listen on all addresses"
    [ "$(status wrong /v1/stats)" = 401 ] || fail "the server accepts requests without a key"
    [ "$(status "$metrics_key" /metrics)" = 200 ] || fail "the key for Prometheus is refused"
    [ "$(status "$metrics_key" /v1/stats)" = 403 ] || fail "the key for Prometheus has too many rights"
    publish "$key" "from a container"
    stop_container
    expect 1 "no answer" "${container[@]}" health
    "${server_container[@]}" serve >>"$log" 2>&1 &
    server=$!
    until_ok "${container[@]}" health
    has_post "$key" "from a container"
}
