#!/usr/bin/env python3
"""Writes a bill of materials of the program (CycloneDX 1.5, JSON), and the licence texts of all its components.

Usage: sbom.py TARGET FEATURES VERSION SBOM.json LICENSES.txt

Why not cargo-cyclonedx: it takes minutes to compile for each release and each run of CI. All its information is in the output of
`cargo tree` (the exact crates and edges of this target and these features, without crates for compile time only) and in Cargo.lock
(the checksums).
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CARGO = os.environ.get("CARGO", "cargo")
PACKAGE = "tidewire-server"

# Crates that only compile others, but whose C sources are in the program, by the crate that links them.
SOURCES = {"openssl-src": "openssl-sys"}

# The names of the licence files in a crate's archive, including those of C sources, which are some folders below.
LICENSE_NAMES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
LICENSE_DEPTH_MAX = 4
LICENSE_BYTES_MAX = 200_000


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked_crates(target, features):
    """The crates in the program as {(name, version): licence}, and the crates that each uses."""
    def tree(edges):
        lines = run(CARGO, "tree", "--locked", "-p", PACKAGE, "--features", features, "-e", edges, "--target", target,
                    "--prefix", "depth", "--format", "|{p}|{l}|")
        for line in lines.splitlines():
            depth, package, license, _ = line.split("|", 3)
            name, version = package.split(" ")[:2]
            yield int(depth), (name, version.removeprefix("v")), license.replace("/", " OR ")

    crates, users, path = {}, {}, []
    for depth, crate, license in tree("normal,no-proc-macro"):
        crates[crate] = license
        users.setdefault(crate, set())
        path = path[:depth] + [crate]
        # The dependencies of a repeated crate are listed only the first time.
        if len(path) > 1:
            users[path[-2]].add(crate)
    for _, crate, license in tree("normal,build"):
        if crate[0] in SOURCES:
            crates[crate] = license
            users[crate] = set()
            next(used for user, used in users.items() if user[0] == SOURCES[crate[0]]).add(crate)
    return crates, users


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}


def purl(crate):
    return f"pkg:cargo/{crate[0]}@{crate[1]}"


def component(crate, license, checksum):
    entry = {"type": "library", "bom-ref": purl(crate), "name": crate[0], "version": crate[1], "purl": purl(crate),
             "licenses": [{"expression": license}]}
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def bill(crates, users, version, target, features):
    sums = checksums()
    root = next(crate for crate in crates if crate[0] == PACKAGE)
    rust = re.match(r"rustc (\S+)", run("rustc", "--version")).group(1)
    beside = [
        {"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust,
         "licenses": [{"expression": "MIT OR Apache-2.0"}]},
        {"type": "library", "bom-ref": "musl", "name": "musl", "licenses": [{"expression": "MIT"}],
         "description": "the C library that Rust ships for this target"},
    ]
    others = sorted(crate for crate in crates if crate != root)
    components = [component(crate, crates[crate], sums[crate]) for crate in others] + beside
    dependencies = [{"ref": purl(crate), "dependsOn": sorted(purl(used) for used in users[crate])}
                    for crate in [root, *others]]
    dependencies[0]["dependsOn"] += [each["bom-ref"] for each in beside]
    made = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    program = component(root, crates[root], None) | {"type": "application", "name": "tidewire", "version": version}
    program["properties"] = [{"name": "cargo:target", "value": target}, {"name": "cargo:features", "value": features}]
    sbom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": program},
            "components": components, "dependencies": dependencies}
    # Deterministic: the same program gets the same number.
    sbom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sbom, sort_keys=True))}"
    return sbom


def license_texts(directory):
    for folder, folders, names in os.walk(directory):
        depth = len(Path(folder).relative_to(directory).parts)
        folders[:] = sorted(each for each in folders if depth < LICENSE_DEPTH_MAX and each not in {"tests", "target"})
        for name in sorted(names):
            path = Path(folder) / name
            is_text = path.suffix not in {".rs", ".py", ".json", ".toml", ".pl"}
            if LICENSE_NAMES.match(name) and is_text and path.stat().st_size <= LICENSE_BYTES_MAX:
                yield path.read_text(errors="replace").strip()


def licenses(crates):
    """The text of each licence once, below its crates."""
    metadata = json.loads(run(CARGO, "metadata", "--locked", "--all-features", "--format-version", "1"))
    folders = {(each["name"], each["version"]): Path(each["manifest_path"]).parent for each in metadata["packages"]}
    of_text, without = {}, []
    for crate in sorted(crates):
        if crate[0].startswith("tidewire"):
            continue
        texts = list(license_texts(folders[crate]))
        if not texts:
            without.append(crate)
        for text in texts:
            named = of_text.setdefault(text, [])
            if crate not in named:
                named.append(crate)
    parts = ["Tidewire is linked with these libraries, each under its own licence.\n"
             "In addition: the standard library of Rust (MIT OR Apache-2.0) and musl (MIT, copyright Rich Felker and others)."]
    if without:
        named = "\n".join(f"{name} {version}: {crates[name, version]}" for name, version in without)
        parts.append(f"The archives of these crates have no licence text:\n{named}")
    for text, named in of_text.items():
        parts.append("\n".join(f"{name} {version}: {crates[name, version]}" for name, version in named) + f"\n\n{text}")
    return f"\n\n{'-' * 78}\n\n".join(parts) + "\n"


def main():
    target, features, version, sbom_file, licenses_file = sys.argv[1:]
    crates, users = linked_crates(target, features)
    Path(sbom_file).write_text(json.dumps(bill(crates, users, version, target, features), indent=1) + "\n")
    Path(licenses_file).write_text(licenses(crates))
    print(f"{len(crates)} crates are linked")


main()
