#!/usr/bin/env bash
# Loads the image, checks its configuration, and runs it with buildah: no daemon, no registry.
#
#   scripts/release/check_image.sh IMAGE.tar.gz WORK  in its own namespaces
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/release/lib.sh
image=$(realpath "$1") work=$2

begin
gzip -dc "$image" >"$work/image.tar"
images() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }
name=$(images from --pull-never -q "docker-archive:$work/image.tar")
images inspect --type container "$name" >"$work/inspect.json"
python3 - "$work/inspect.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))["Docker"]["config"]
expected = {
    "User": "65532:65532", "WorkingDir": "/etc/tidewire", "Entrypoint": ["/usr/bin/tidewire"], "Cmd": ["serve"],
    "ExposedPorts": {"8080/tcp": {}}, "Volumes": {"/etc/tidewire": {}, "/var/lib/tidewire": {}}, "StopSignal": "SIGTERM",
}
for name, value in expected.items():
    assert config.get(name) == value, f"{name} is {config.get(name)}, not {value}"
assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/tidewire", "health"], config["Healthcheck"]
assert "TIDEWIRE_CONFIG=/etc/tidewire/tidewire.toml" in config["Env"], config["Env"]
PYTHON
# buildah sometimes mounts the volumes of an image after those of -v.
images config --volume /etc/tidewire- --volume /var/lib/tidewire- "$name"

# Like new volumes: with the content and the owner of the image.
mounted=$(images mount "$name")
files=$(cd "$mounted" && find . -type f | sort | tr '\n' ' ')
[ "$files" = "./usr/bin/tidewire ./usr/share/doc/tidewire/LICENSE-APACHE ./usr/share/doc/tidewire/LICENSE-MIT ./usr/share/doc/tidewire/THIRD-PARTY-LICENSES.txt " ] ||
    fail "the image has unexpected files: $files"
for volume in etc/tidewire var/lib/tidewire; do
    [ "$(stat -c '%u:%g' "$mounted/$volume")" = 65532:65532 ] || fail "the program cannot write a volume at /$volume"
    mkdir -p "$work/volumes/$volume"
    chown 65532:65532 "$work/volumes/$volume"
done
config=$work/volumes/etc/tidewire
run=(buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs run --isolation chroot
    -v "$config:/etc/tidewire:rw" -v "$work/volumes/var/lib/tidewire:/var/lib/tidewire:rw")
# buildah first seals a copy of itself in memory. The kernel sometimes refuses that, and then nothing has run.
run_image() {
    local code said
    said=$(mktemp "$work/said.XXXXXX")
    for _ in 1 2 3; do
        code=0
        "${run[@]}" "$name" -- "$@" 2>"$said" || code=$?
        grep -qF "sealing memfd" "$said" || break
    done
    cat "$said" >&2
    rm "$said"
    return $code
}
container=(run_image /usr/bin/tidewire)
server_container=("${container[@]}")
# buildah does not forward signals; this process namespace has one server.
stop_container() {
    local pid ended=0
    pid=$(pgrep -x tidewire)
    [ "$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")" = 65532 ] || fail "the server runs as another user"
    kill -TERM "$pid"
    wait "$server" || ended=$?
    [ $ended = 0 ] || fail "the server ended with $ended"
}
use_container
stop_container
say "the image runs as user 65532 with its volumes: init, keys, health, a restart"
