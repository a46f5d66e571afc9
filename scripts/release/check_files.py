#!/usr/bin/env python3
"""Checks the bill of materials against Cargo.lock, and the compose file against the files and settings that it refers to.

Usage: check_files.py SBOM.json STAGE
"""

import json
import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Crates of tests only.
FOREIGN = {"jsonschema", "proptest"}

# Crates of each program, and additional crates of a feature.
ALWAYS = ["tidewire", "mimalloc", "ring", "rustls", "actix-http", "redb", "zstd-sys"]
OF_FEATURE = {"cluster-tls-vendored": ["rdkafka-sys", "openssl-src"], "cassandra-tls": ["scylla", "openssl"], "otel": ["opentelemetry"]}


def check_bill(path):
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5"), "not CycloneDX 1.5"
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    locked = {(each["name"], each["version"]): each.get("checksum")
              for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    crates = [each for each in bill["components"] if each.get("purl", "").startswith("pkg:cargo/")]
    assert len(crates) > 100, f"only {len(crates)} crates"
    for each in crates:
        key = (each["name"], each["version"])
        assert key in locked, f"{key} is not in Cargo.lock"
        assert [one["content"] for one in each.get("hashes", [])] == [locked[key]] * bool(locked[key]), f"the checksum of {key}"
        assert each["licenses"][0]["expression"], f"{key} has no licence"
    names = {each["name"] for each in crates}
    assert not names & FOREIGN, f"built with {names & FOREIGN}"
    properties = {each["name"]: each["value"] for each in bill["metadata"]["component"]["properties"]}
    features = properties["cargo:features"].split(",")
    for name in ALWAYS + [name for feature in features for name in OF_FEATURE.get(feature, [])]:
        assert name in names, f"{name} is missing"
    # The program reaches all components.
    uses = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    reached, due = set(), [bill["metadata"]["component"]["bom-ref"]]
    while due:
        ref = due.pop()
        if ref not in reached:
            reached.add(ref)
            due += uses.get(ref, [])
    listed = {each["bom-ref"] for each in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert reached == listed, f"not reached or not listed: {sorted(reached ^ listed)}"
    print(f"-- the bill of materials has {len(crates)} crates, all from Cargo.lock, and all used")


def check_compose(stage):
    try:
        import yaml
    except ImportError:
        # The S3 server of other tests has it.
        other = ROOT / "target/moto/bin/python"
        if other.exists() and sys.executable != str(other):
            os.execv(other, [other, *sys.argv])
        assert os.environ.get("TIDEWIRE_REQUIRE_PACKAGES") != "1", "PyYAML is missing"
        print("-- skipped the compose file: PyYAML is missing")
        return
    ops = stage / "ops"
    for each in ops.rglob("*.yml"):
        yaml.safe_load(each.read_text())
    compose = yaml.safe_load((ops / "compose.yml").read_text())
    services = compose["services"]
    nodes = {"node-a", "node-b", "node-c"}
    assert set(services) == {"tidewire", "prometheus", "grafana", "kafka"} | nodes
    of_cluster = {name for name, service in services.items() if service.get("profiles") == ["cluster"]}
    assert of_cluster == nodes | {"kafka"}, "only the nodes and their log have the profile"
    settings = (ROOT / "docs/settings.md").read_text()
    for name in nodes:
        for variable in services[name]["environment"]:
            assert f"`{variable}`" in settings, f"{name}: {variable} is not a setting"
    for name, service in services.items():
        assert re.search(r":(v?\d|\$|latest\})", service["image"]), f"{name}: the image has no version"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is reachable from other machines at {port}"
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            is_there = (ops / source).is_file() if source.startswith(".") else source in compose["volumes"]
            assert is_there, f"{name} mounts {source}, which does not exist"
    # The user of Prometheus is in the group of the image's user, which may read its key.
    user = re.search(r"^USER \d+:(\d+)$", (ops / "Dockerfile").read_text(), re.MULTILINE).group(1)
    assert services["prometheus"]["user"].split(":")[1] == user
    grafana = services["grafana"]["environment"]
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false", "Grafana accepts its default password"
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true", "Grafana creates its default administrator"
    build = services["tidewire"]["build"]
    assert ((ops / build["context"]) / build["dockerfile"]).is_file()
    for source in re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", (ops / "Dockerfile").read_text(), re.MULTILINE):
        for each in source.split():
            assert (stage / each).exists(), f"the Dockerfile copies {each}, which is not in the archive"
    print("-- the compose file and the Dockerfile have existing files, pinned images and loopback ports")


check_bill(Path(sys.argv[1]))
check_compose(Path(sys.argv[2]))
