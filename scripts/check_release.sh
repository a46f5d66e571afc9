#!/usr/bin/env bash
# Tests the results of scripts/release.sh: checksums, the archive, the bill of materials, the static program in an empty root, the Debian
# package from its installation to its purge, the image, the compose file. Needs root and Linux namespaces; nothing outside of them
# changes, and all started processes end with them.
#
#   scripts/check_release.sh [OUTDIR [BEFORE.deb]]     default: target/packages, and its own package as the previous version
#
#   TIDEWIRE_REQUIRE_PACKAGES=1  fail if a part would be skipped because root, buildah, debootstrap or prometheus is missing
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/release/lib.sh
out=$(realpath "${1:-target/packages}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/unpacked" "$work/inside"

skip() {
    [ "${TIDEWIRE_REQUIRE_PACKAGES:-}" != 1 ] || fail "$1 is missing"
    say "skipped $2: $1 is missing"
}

# Runs a check for at most five minutes in its own namespaces, which end with it.
isolated() {
    timeout --kill-after=10 300 unshare --mount --propagation private --pid --fork --kill-child --mount-proc --net --ipc --uts \
        "$@" "$work/inside" </dev/null
}

(cd "$out" && sha256sum --quiet --strict -c SHA256SUMS) || fail "a checksum is wrong"
release_files "$out" >"$work/files"
[ -s "$work/files" ] || fail "$out has no packages"
while read -r each; do
    grep -q " $each\$" "$out/SHA256SUMS" || fail "$each has no checksum"
done <"$work/files"

archive=$(echo "$out"/tidewire-*-x86_64-linux.tar.gz)
name=$(basename "$archive" .tar.gz)
version=${name#tidewire-} version=${version%-x86_64-linux}
tar -C "$work/unpacked" --no-same-owner -xzf "$archive"
stage=$work/unpacked/$name
for each in tidewire README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md THIRD-PARTY.md LICENSE-MIT LICENSE-APACHE \
    THIRD-PARTY-LICENSES.txt docs/install.md ops/tidewire.service ops/Dockerfile ops/compose.yml ops/container/prometheus.yml ops/alerts.yml ops/grafana-dashboard.json; do
    [ -s "$stage/$each" ] || fail "the archive lacks $each"
done
expect 0 "tidewire $version" "$stage/tidewire" --version
for each in man/tidewire.1 completions/tidewire.bash completions/_tidewire completions/tidewire.fish; do
    [ -s "$stage/$each" ] || fail "the archive lacks $each"
done
readelf -dlSW "$stage/tidewire" >"$work/elf" || fail "readelf cannot read the program"
! grep NEEDED "$work/elf" || fail "the program is linked dynamically"
! grep INTERP "$work/elf" || fail "the program needs an interpreter"
! grep -E '\.(debug_(info|line|str)|symtab)' "$work/elf" || fail "the program is not stripped"
names_no_folder_of_the_compilation "$stage/tidewire"
tar -C "$work/unpacked" --no-same-owner -xzf "$out/$name-debug.tar.gz"
names_no_folder_of_the_compilation "$work/unpacked/tidewire.debug"
readelf -p .gnu_debuglink "$stage/tidewire" | grep -F tidewire.debug >/dev/null || fail "the program does not name its debug symbols"
nm -C "$work/unpacked/tidewire.debug" | grep -F tidewire_server::cli:: >/dev/null || fail "the debug symbols lack functions of the program"
say "the archive is complete, its program static and stripped: $(stat -c %s "$stage/tidewire") bytes"

python3 scripts/release/check_files.py "$out/$name.cdx.json" "$stage"

if [ "$(id -u)" != 0 ]; then
    skip root "the program in an empty root, the Debian package, the image"
    exit
fi
command -v prometheus >/dev/null || skip prometheus "Prometheus beside the container"
isolated scripts/release/check_static.sh "$stage"
if command -v debootstrap >/dev/null; then
    debian=target/debian
    if ! [ -d "$debian" ]; then
        rm -rf "$debian.new"
        debootstrap --variant=minbase --include=systemd,procps bookworm "$debian.new" >"$work/debootstrap.log" || fail "debootstrap: $(tail "$work/debootstrap.log")"
        mv "$debian.new" "$debian"
    fi
    package=$out/tidewire_${version}_amd64.deb
    isolated scripts/release/check_debian.sh "$debian" "${2:-$package}" "$package"
else
    skip debootstrap "the Debian package"
fi
if [ -e "$out/tidewire-$version-image.tar.gz" ] && command -v buildah >/dev/null; then
    isolated scripts/release/check_image.sh "$out/tidewire-$version-image.tar.gz"
else
    skip buildah "the image"
fi
