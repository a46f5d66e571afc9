#!/usr/bin/env bash
# Fuzzes all code that reads external input, with cargo-fuzz (https://rust-fuzz.github.io/book/), which is installed if it is
# missing. Needs a nightly toolchain of Rust. The checks of the targets are in src/fuzzing/; the usual tests replay fuzz/corpus/ on any toolchain.
#
#     scripts/fuzz.sh [SECONDS [TARGET...]]    # for each target [default: 10 s, all targets]
#
# TIDEWIRE_FUZZ_OPTIONS are passed to each target: with -seed=1 and without target/fuzz/found/ the run is reproducible.
#
# Found inputs are stored in target/fuzz/found/, and used in later runs. A failing input is stored in fuzz/artifacts/:
# fix the cause, and add a small input like it to fuzz/corpus/ or a unit test.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
shift || true
toolchain=${TIDEWIRE_FUZZ_TOOLCHAIN:-nightly}
place=$PWD/target/fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tidewire-fuzz$')

if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --quiet --locked cargo-fuzz || { echo "fuzz: cannot install cargo-fuzz" >&2; exit 1; }
fi

cargo "+$toolchain" fuzz build --target-dir "$place"
for target in "${targets[@]}"; do
    echo "fuzz: $target for $seconds s"
    mkdir -p "$place/found/$target"
    # One compressed block may be 64 MiB; no other input of a few KiB may cause large allocations.
    case $target in snapshot) largest_mb=160 ;; *) largest_mb=16 ;; esac
    cargo "+$toolchain" fuzz run --target-dir "$place" "$target" "$place/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=$largest_mb -verbosity=0 -print_funcs=0 -print_final_stats=1 ${TIDEWIRE_FUZZ_OPTIONS:-}
done
