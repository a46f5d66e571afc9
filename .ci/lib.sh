# What the gate (`run`) and the full suite (`full`) share: named steps with logs, tests that are run again, and a table at the end.
# shellcheck shell=bash

logs=$PWD/target/ci
mkdir -p "$logs"

# Failed tests name their lines without debug information, and CI builds everything as a whole.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
# Cargo starts test programs with it.
host=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_${host^^}_RUNNER
export "${runner//-/_}=$PWD/.ci/run_tests"

# Runs a step: its output is also in target/ci/NAME.log, and its results in target/ci/NAME/. Adds a line to target/ci/steps.
step() { # NAME COMMAND...
    local name=$1 began=$SECONDS code=0
    shift
    printf '\n== %s\n' "$name"
    rm -rf "${logs:?}/$name" "$logs/$name.log"
    mkdir -p "$logs/$name"
    TIDEWIRE_CI_LOGS=$logs/$name "$@" 2>&1 | tee "$logs/$name.log" || code=$?
    local result=ok counts
    counts=$(counts "$name")
    # The full suite installs missing programs, so it must not skip a test.
    [[ -z ${skips_nothing:-} || $counts =~ ^[0-9]+\ [0-9]+\ 0\  ]] || { echo "skipped a test"; code=1; }
    [ $code = 0 ] || result=FAILED
    printf '== %s: %s after %s s\n' "$name" "$result" $((SECONDS - began))
    echo "$name $result $((SECONDS - began)) $counts" >>"$logs/steps"
    return $code
}

# Prints the numbers of passed, failed, skipped and flaky tests of a step: those of test programs, of documentation, of pytest, and of Node.
counts() { # NAME
    touch "$logs/$1/results"
    awk 'FILENAME ~ /results$/ {
            if ($1 == "passed") passed += $2
            if ($1 == "skipped") skipped += $2
            if ($1 == "failed") failed++
            if ($1 == "flaky") { flaky++; passed++ }
            next
        }
        /^   Doc-tests / { documentation = 1 }
        documentation && /^test result:/ { passed += $4; failed += $6; skipped += $8; documentation = 0 }
        /^(# |ℹ )(pass|fail|skipped) [0-9]+$/ { if ($2 == "pass") passed += $3; else if ($2 == "fail") failed += $3; else skipped += $3 }
        /^(=+ )?[0-9]+ (passed|failed|skipped|error).* in [0-9.]+s/ {
            for (i = 1; i < NF; i++) {
                if ($(i + 1) ~ /^passed/) passed += $i
                if ($(i + 1) ~ /^(failed|error)/) failed += $i
                if ($(i + 1) ~ /^skipped/) skipped += $i
            }
        }
        END { printf "%d %d %d %d\n", passed, failed, skipped, flaky }' "$logs/$1/results" "$logs/$1.log"
}

# Prints the table of all steps, the tests that passed only when they were run again, and the closing line.
summary() {
    printf '\n%-16s %-7s %8s %7s %7s %8s %6s\n' step result seconds passed failed skipped rerun
    : >"$logs/named"
    while read -r name result seconds passed failed skipped flaky; do
        printf '%-16s %-7s %8s %7s %7s %8s %6s\n' "$name" "$result" "$seconds" "$passed" "$failed" "$skipped" "$flaky"
        sed -n "s|^failed \(.*\)|failed: \1 (target/ci/$name/failures)|p; s|^flaky \(.*\)|flaky: \1 (target/ci/$name/failures)|p" \
            "$logs/$name/results" >>"$logs/named"
    done <"$logs/steps"
    cat "$logs/named"
    awk '{ passed += $4; failed += $5; skipped += $6 } END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$logs/steps"
}
