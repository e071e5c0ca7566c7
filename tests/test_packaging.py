"""What is shipped: the wheel and the source archive, and deployment files whose flags and paths exist here."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paraserve.api.endpoints import ENDPOINTS
from paraserve.settings import ServerSettings, load_settings
from paraserve.settings.declare import options_of

ROOT = Path(__file__).resolve().parents[1]
FLAGS = {flag for option in options_of(ServerSettings) for flag in (option.flag, f"--no-{option.key}")} | {"--config"}
PATHS = {endpoint.path for endpoint in ENDPOINTS}
POD = "deploy/kubernetes/paraserve.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both archives, built from each other's contents: the wheel comes out of the source archive."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_wheel_has_every_module_the_pages_and_the_type_marker(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    package = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {"paraserve/py.typed", "paraserve/pages/playground.html", "paraserve/pages/docs.html"} <= package
    assert {name for name in names if ".dist-info/" not in name} == package
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_has_what_the_tests_and_an_operator_need(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"README.md", "LICENSE", "constraints.txt", "tests/toy.py", "docs/README.md", "examples/README.md", POD}
    assert needed <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this is no clone of the repository")
    return done.stdout


def test_no_tracked_file_is_larger_than_a_megabyte() -> None:
    """A wheel of 22 MB once came in with a commit that had nothing to do with it."""
    tracked = [ROOT / name for name in git("ls-files", "-z").decode().split("\0") if name]
    assert len(tracked) > 100
    assert [path for path in tracked if path.is_file() and path.stat().st_size > 1_000_000] == []


def test_a_clone_without_history_packs_below_two_megabytes() -> None:
    assert len(git("archive", "--format=tar.gz", "HEAD")) < 2_000_000


def documents(path: str) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((ROOT / path).read_text())


def one(path: str, kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents(path) if document["kind"] == kind]
    return found


def test_the_flags_of_the_pod_are_taken_and_its_probes_are_endpoints() -> None:
    pod = one(POD, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = load_settings(container["args"], {}).settings
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in PATHS
    assert pod["securityContext"]["runAsNonRoot"]
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + settings.drain_timeout
    assert settings.api_key_file is not None
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(settings.api_key_file).parent) in mounts


def test_the_engine_of_the_pod_is_a_service_of_the_example() -> None:
    (container,) = one(POD, "Deployment")["spec"]["template"]["spec"]["containers"]
    (url,) = load_settings(container["args"], {}).settings.engine_url
    example = list(documents("deploy/kubernetes/sglang-pd.yaml"))
    services = {d["metadata"]["name"]: d["spec"]["ports"] for d in example if d["kind"] == "Service"}
    host, port = url.removeprefix("http://").split(":")
    assert int(port) in [entry["port"] for entry in services[host]]


def test_the_budget_and_the_service_select_the_pods() -> None:
    labels = one(POD, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert one(POD, "Service")["spec"]["selector"] == labels
    assert one(POD, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("path", ["Dockerfile", "compose.yaml", "deploy/systemd/paraserve.service"])
def test_flags_and_variables_exist(path: str) -> None:
    text = (ROOT / path).read_text()
    variables = {option.variable for option in options_of(ServerSettings)}
    assert set(re.findall(r"\bPARASERVE_[A-Z_]+", text)) <= variables
    commands = re.findall(r"paraserve serve (.*)", text) + re.findall(r"(--(?:engine|model)-[a-z-]+)", text)
    assert {flag for command in commands for flag in re.findall(r"--[a-z-]+", command)} <= FLAGS


def test_stopping_takes_longer_than_the_drain_everywhere() -> None:
    unit = (ROOT / "deploy/systemd/paraserve.service").read_text()
    drain, patience = re.search(r"--drain-timeout (\d+)", unit), re.search(r"TimeoutStopSec=(\d+)", unit)
    assert drain is not None
    assert patience is not None
    assert int(patience[1]) > int(drain[1])
    (compose,) = documents("compose.yaml")
    server = compose["services"]["paraserve"]
    assert int(server["stop_grace_period"].rstrip("s")) > int(server["environment"]["PARASERVE_DRAIN_TIMEOUT"])


def test_the_image_runs_as_nobody_special_and_checks_an_endpoint() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
    checked = re.search(r"HEALTHCHECK(?:.|\\\n)*?'(/[a-z]+)'", text)
    assert checked is not None
    assert checked[1] in PATHS
    assert "libgomp1" in text  # found missing when the image was run
    copied = {name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all((ROOT / name).exists() and f"!{name}" in ignored for name in copied)
