#!/bin/sh
# Counts the cost of one page, embedded, over HTTP and over the Redis protocol: instructions of user code, and allocated blocks of memory.
# Both are the additional cost of twice as many pages, divided by the pages, so that the start does not count. Needs valgrind.
#
#   scripts/page_cost.sh [PAGES]
set -eu
cd "$(dirname "$0")/.."
pages=${1:-10000}
built=$(cargo bench -p tidewire-server --bench page_cost --no-run 2>&1) || { echo "$built" >&2; exit 1; }
program=$(echo "$built" | sed -n 's/.*Executable.*(\(.*\))$/\1/p')

# The last number that valgrind prints after a label.
counted() { # TOOL LABEL WAY PAGES
    valgrind --tool="$1" "--$1-out-file=/dev/null" "$program" "$3" "$4" 2>&1 | sed -n "s/.*$2//p" | tr -d ', ' | sed 's/blocks.*//'
}

for way in embedded http resp; do
    for tool in callgrind dhat; do
        case $tool in
            callgrind) label='Collected *: ' what=instructions ;;
            dhat) label='Total: .* bytes in ' what='blocks allocated' ;;
        esac
        few=$(counted "$tool" "$label" "$way" "$pages")
        many=$(counted "$tool" "$label" "$way" $((2 * pages)))
        echo "$way: $(awk "BEGIN { printf \"%.1f\", ($many - $few) / $pages }") $what per page"
    done
done
