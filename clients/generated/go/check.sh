#!/usr/bin/env bash
# A Go client generated from the running server's description: no warning, built, vetted, and used against that server.
# Needs Go, curl, python3, and a built server: TIDEWIRE_PROGRAM, or target/debug/tidewire.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# = 0 ]; then
    exec ../with_server.sh ./check.sh generate
fi
url=$2 keyed=$3
target=$(cd ../../.. && pwd)/target/generated-go
export GOFLAGS=-mod=readonly
rm -rf "$target" && mkdir -p "$target/api"
cp go.mod go.sum main.go "$target"
curl -sSf "$url/openapi.json" >"$target/openapi.json"
# On a fresh machine Go reports what it downloads, which is no warning of the generator.
go mod download
go tool oapi-codegen -config config.yml -o "$target/api/api.gen.go" "$target/openapi.json" 2>&1 | tee "$target/generate.log"
# It is silent unless something is wrong.
[ ! -s "$target/generate.log" ]
cd "$target"
go vet ./...
go build -o exercise .
./exercise "$url" "$keyed"
