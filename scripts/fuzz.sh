#!/usr/bin/env bash
# Fuzzes all that reads what comes from outside, by cargo-fuzz (https://rust-fuzz.github.io/book/), which is installed if it is not
# there. Needs a nightly toolchain of Rust. What the targets check is in src/fuzzing/; the usual tests replay fuzz/corpus/ on any.
#
#     scripts/fuzz.sh [SECONDS [TARGET...]]    # for each target; 10 without, all of them
#
# TIDEWIRE_FUZZ_OPTIONS are handed to each target: with -seed=1 and without target/fuzz/found/ it does the same again.
#
# What is found on the way is kept in target/fuzz/found/, and goes on being used. An input that fails is put into fuzz/artifacts/:
# mend the cause, and put a small one like it into fuzz/corpus/ or a unit test.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
shift || true
toolchain=${TIDEWIRE_FUZZ_TOOLCHAIN:-nightly}
place=$PWD/target/fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tidewire-fuzz$')

if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --quiet --locked cargo-fuzz || { echo "fuzz: cargo-fuzz cannot be installed" >&2; exit 1; }
fi

cargo "+$toolchain" fuzz build --target-dir "$place"
for target in "${targets[@]}"; do
    echo "fuzz: $target for $seconds s"
    mkdir -p "$place/found/$target"
    # One compressed block may well be 64 MiB; nothing else of a few KiB may make anybody ask for much.
    case $target in snapshot) largest_mb=160 ;; *) largest_mb=16 ;; esac
    cargo "+$toolchain" fuzz run --target-dir "$place" "$target" "$place/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=$largest_mb -verbosity=0 -print_funcs=0 -print_final_stats=1 ${TIDEWIRE_FUZZ_OPTIONS:-}
done
