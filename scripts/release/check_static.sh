#!/usr/bin/env bash
# Runs the static program like the image: in an otherwise empty root, as a user other than root. Then Prometheus reads its metrics
# with the configuration of ops/compose.yml.
#
#   scripts/release/check_static.sh STAGE WORK        in its own namespaces; STAGE: the unpacked archive
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/release/lib.sh
stage=$1 work=$2

begin
empty=$work/empty
config=$empty/etc/tidewire
mkdir -p "$empty/usr/bin" "$config" "$empty/var/lib/tidewire"
cp "$stage/tidewire" "$empty/usr/bin"
chown -R 65532:65532 "$config" "$empty/var/lib/tidewire"

# The user, the directory and the environment that ops/Dockerfile sets.
container=(env -i TIDEWIRE_CONFIG=/etc/tidewire/tidewire.toml TIDEWIRE_DATA_DIR=/var/lib/tidewire/data /usr/bin/unshare
    "--root=$empty" --wd=/etc/tidewire --setuid=65532 --setgid=65532 /usr/bin/tidewire)
server_container=("${container[@]}")
stop_container() { stop; }
use_container
say "the static program runs in an empty root as user 65532: init, keys, health, a restart"

if command -v prometheus >/dev/null; then
    copy_of_root /
    # This machine may have its own Tidewire.
    rm -rf "$work/root/etc/tidewire"
    install -d -m 755 "$work/root/etc/prometheus" "$work/root/etc/tidewire"
    cp "$stage/ops/container/prometheus.yml" "$stage/ops/alerts.yml" "$work/root/etc/prometheus"
    cp -p "$config/metrics.key" "$config/access.toml" "$work/root/etc/tidewire"
    chmod -R go+rX "$work/root/etc/prometheus"
    echo "127.0.0.1 localhost tidewire" >"$work/root/etc/hosts"
    # The user of Prometheus in ops/compose.yml.
    as_prometheus=(in_root setpriv --reuid=65534 --regid=65532 --clear-groups)
    expect 1 "Permission denied" "${as_prometheus[@]}" cat /etc/tidewire/access.toml
    in_root promtool check config /etc/prometheus/prometheus.yml >"$work/promtool.out" || fail "$(cat "$work/promtool.out")"
    chmod 1777 "$work/root/tmp"
    "${as_prometheus[@]}" prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/tmp/prometheus \
        --web.listen-address=127.0.0.1:9090 >"$work/prometheus.log" 2>&1 &
    asks() { curl -sf 'http://127.0.0.1:9090/api/v1/query?query=tidewire_ready' | grep -q '"job":"tidewire".*"1"\]'; }
    log=$work/prometheus.log
    until_ok asks
    say "Prometheus reads the metrics with the key that init wrote, and cannot read anything else"
else
    say "skipped: prometheus is not installed"
fi
stop_container
