#!/usr/bin/env bash
# Builds the Debian package from the files of a release.
#
#   scripts/release/debian.sh STAGE VERSION OUTDIR
#
# With dpkg-deb, not with cargo-deb: the files exist already, a dozen lines place them, and compiling cargo-deb would take minutes.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
stage=$1 version=$2 out=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$work/package
doc=$package/usr/share/doc/tidewire
mkdir -p "$package/DEBIAN" "$doc"

install -D -m 755 "$stage/tidewire" "$package/usr/bin/tidewire"
install -D -m 644 "$root/ops/debian/tidewire.toml" "$package/etc/tidewire/tidewire.toml"
mkdir -p "$package/usr/lib/systemd/system"
# The unit has the paths of a manual installation.
sed -e 's#/usr/local/bin/#/usr/bin/#; s#/usr/local/share/#/usr/share/#' "$root/ops/tidewire.service" \
    >"$package/usr/lib/systemd/system/tidewire.service"
install -D -m 644 -t "$package/usr/share/man/man1" "$stage"/man/*.1
gzip -9n "$package"/usr/share/man/man1/*.1
install -D -m 644 "$stage/completions/tidewire.bash" "$package/usr/share/bash-completion/completions/tidewire"
install -D -m 644 "$stage/completions/_tidewire" "$package/usr/share/zsh/vendor-completions/_tidewire"
install -D -m 644 "$stage/completions/tidewire.fish" "$package/usr/share/fish/vendor_completions.d/tidewire.fish"
install -D -m 644 -t "$package/usr/share/tidewire" "$root/ops/alerts.yml" "$root/ops/grafana-dashboard.json"
cp -r "$stage"/*.md "$stage/docs" "$stage/LICENSE-APACHE" "$stage/LICENSE-MIT" "$doc"
gzip -9n <"$stage/CHANGELOG.md" >"$doc/changelog.gz"
{
    printf 'Tidewire is licensed under Apache 2.0 (LICENSE-APACHE) or this licence, as you choose:\n\n'
    cat "$stage/LICENSE-MIT"
    printf '\n\n'
    cat "$stage/THIRD-PARTY-LICENSES.txt"
} >"$doc/copyright"

(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$package/DEBIAN/md5sums"
# Of files only: the size of a directory differs between file systems.
kilobytes=$(find "$package/usr" "$package/etc" -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
sed -e "s/@VERSION@/$version/; s/@KILOBYTES@/$kilobytes/" "$root/ops/debian/control" >"$package/DEBIAN/control"
echo /etc/tidewire/tidewire.toml >"$package/DEBIAN/conffiles"
install -m 755 -t "$package/DEBIAN" "$root/ops/debian/postinst" "$root/ops/debian/prerm" "$root/ops/debian/postrm"
chmod -R u=rwX,go=rX "$package"
find "$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz "-z$RELEASE_COMPRESSION" -b "$package" "$out/tidewire_${version}_amd64.deb" >/dev/null
