#!/usr/bin/env bash
# Makes a release: a static program as tar.gz, its debug symbols, a Debian package, a container image, a bill of materials and checksums.
# Needs musl-gcc (Debian: musl-tools), g++, make and perl for Kafka and OpenSSL, Python 3.11, dpkg-deb; for the image buildah or a running Docker.
#
#   scripts/release.sh [OUTDIR]          default: target/packages; earlier packages in it are deleted
#
#   TIDEWIRE_RELEASE_PROFILE  a cargo profile: `dist`, or `quick`, which compiles much faster, for tests of the packages
#   TIDEWIRE_RELEASE_FEATURES cargo features in addition to the default ones, default: all that operators use; empty for a program of half the size
#   TIDEWIRE_RELEASE_IMAGE    `require`: fail without a builder of images; `skip`: build no image
#   CARGO                     the cargo to use
#   SOURCE_DATE_EPOCH         the time of all files [seconds, default: of the last commit], so that the same program gives the same packages
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/release/lib.sh

out=${1:-target/packages}
profile=${TIDEWIRE_RELEASE_PROFILE:-dist}
cargo=${CARGO:-cargo}
target=x86_64-unknown-linux-musl
all_features=cluster-tls-vendored,cassandra-tls,otel
features=${TIDEWIRE_RELEASE_FEATURES-$all_features}
# Fails if the program has grown unnoticed. OpenSSL takes 5 MB of these bytes, librdkafka 2 MB and the driver of Cassandra 2 MB.
program_bytes_max=$((36 * 1000 * 1000))

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
name=tidewire-$version-x86_64-linux
umask 022
# Packages for tests need not be small.
export RELEASE_COMPRESSION=9
[ "$profile" = dist ] || RELEASE_COMPRESSION=1

command -v musl-gcc >/dev/null || fail "musl-gcc is missing: apt-get install musl-tools"
for each in g++ make perl; do
    [ -z "$features" ] || command -v "$each" >/dev/null || fail "$each is missing: apt-get install g++ make perl"
done
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    rustup target add "$target"
fi
[ -z "$(git status --porcelain)" ] || printf 'warning: files differ from the last commit, but the packages get its time\n' >&2

# The program must not reveal where it was compiled: neither the folders of its builder, nor the registry of the crates. A later
# entry has precedence. RUSTFLAGS apply only to the target, because `--target` is given.
"$cargo" fetch --locked --target "$target"
cargo_home=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")
mapped=("$cargo_home=/cargo" "$root=/tidewire" "$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc")
for each in "$cargo_home"/registry/src/*; do
    mapped+=("$each=/crates")
done
# With a compiler of the same name and not with CFLAGS, because OpenSSL writes its compile options into the program. It also writes the
# directories of its plug-ins, which a static program does not load.
tools=${CARGO_TARGET_DIR:-$root/target}/release-tools
mkdir -p "$tools"
plug_ins="-UENGINESDIR '-DENGINESDIR=\"/nonexistent\"' -UMODULESDIR '-DMODULESDIR=\"/nonexistent\"'"
printf '#!/bin/sh\nexec %s "$@" %s\n' "$(command -v musl-gcc)" "${mapped[*]/#/-ffile-prefix-map=} $plug_ins" >"$tools/musl-gcc"
chmod +x "$tools/musl-gcc"
PATH=$(cd "$tools" && pwd):$PATH
export PATH
export RUSTFLAGS="${RUSTFLAGS:-} ${mapped[*]/#/--remap-path-prefix=}"

say "the static program, profile $profile"
"$cargo" build --locked -p tidewire-server --bin tidewire --features "$features" --target "$target" --profile "$profile"
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
# Not earlier: a change of it recompiles C sources, although their programs do not depend on it.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
built=${CARGO_TARGET_DIR:-$root/target}/$target/$folder/tidewire

mkdir -p "$out"
out=$(cd "$out" && pwd)
release_files "$out" | (cd "$out" && xargs -r -d '\n' rm -f -- SHA256SUMS)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "the files of the archive"
stage=$work/$name
mkdir -p "$stage/ops/container/empty"
strip -o "$stage/tidewire" "$built"
# With this file beside the program, panics and crashes show functions and lines.
objcopy --only-keep-debug "$built" "$work/tidewire.debug"
(cd "$work" && objcopy --add-gnu-debuglink=tidewire.debug "$stage/tidewire")
touch -d "@$SOURCE_DATE_EPOCH" "$work/tidewire.debug"
tar -C "$work" --owner=0 --group=0 --numeric-owner -cf - tidewire.debug | gzip -n$RELEASE_COMPRESSION >"$out/$name-debug.tar.gz"
bytes=$(stat -c %s "$stage/tidewire")
say "$bytes bytes"
if [ "$profile" = dist ] && [ "$bytes" -gt $program_bytes_max ]; then
    fail "the program has over $program_bytes_max bytes"
fi
CARGO=$cargo python3 scripts/release/sbom.py "$target" "$features" "$version" "$out/$name.cdx.json" "$stage/THIRD-PARTY-LICENSES.txt"
cp ./*.md LICENSE-APACHE LICENSE-MIT "$stage"
cp -r docs "$stage/docs"
cp ops/*.* ops/Dockerfile "$stage/ops"
cp ops/container/*.yml "$stage/ops/container"
mkdir "$stage/completions" "$stage/man"
"$stage/tidewire" man "$stage/man" >/dev/null
"$stage/tidewire" completions bash >"$stage/completions/tidewire.bash"
"$stage/tidewire" completions zsh >"$stage/completions/_tidewire"
"$stage/tidewire" completions fish >"$stage/completions/tidewire.fish"
# Each file has the time of the commit, and only root may change it.
chmod -R u=rwX,go=rX "$stage"
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -n$RELEASE_COMPRESSION >"$out/$name.tar.gz"

say "the Debian package"
scripts/release/debian.sh "$stage" "$version" "$out"

builder=
if [ "${TIDEWIRE_RELEASE_IMAGE:-}" != skip ]; then
    if command -v buildah >/dev/null; then
        builder=buildah
    elif docker info >/dev/null 2>&1; then
        builder=docker
    elif [ "${TIDEWIRE_RELEASE_IMAGE:-}" = require ]; then
        fail "found neither buildah nor a running Docker: apt-get install buildah"
    else
        say "no image: found neither buildah nor a running Docker"
    fi
fi
image=$out/tidewire-$version-image.tar
case $builder in
buildah)
    say "the image, by buildah"
    # Without a registry, a daemon or mounts: layers are plain directories, which are deleted afterwards.
    build() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }
    build bud --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" -q -t "tidewire:$version" \
        -f "$stage/ops/Dockerfile" "$stage" >/dev/null
    build push -q "tidewire:$version" "docker-archive:$image:tidewire:$version"
    ;;
docker)
    say "the image, by Docker"
    docker build -q -t "tidewire:$version" -f "$stage/ops/Dockerfile" "$stage"
    docker save -o "$image" "tidewire:$version"
    ;;
esac
[ ! -e "$image" ] || gzip -nf$RELEASE_COMPRESSION "$image"

mapfile -t files < <(release_files "$out")
(cd "$out" && sha256sum -- "${files[@]}" >SHA256SUMS)
say "in $out:"
(cd "$out" && stat -c '%10s  %n' -- "${files[@]}" SHA256SUMS)
