"""What the operating system refuses, and what a server says, is told in a block of ours: no traceback, no password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.errors import ConnectUnavailable
from cdc.pipeline import Connect
from connectors.rest import ConnectClient
from console.cli.main import _with_file
from operations.state.folder import CAPTURED

ODD = "FILE is odd\n  what to do: `headwater apply FILE --wait`, or `headwater plan FILE`"
TEXT = """
version: 1
name: shop
source: {host: 127.0.0.1, port: 9, database: shop, user: u, password: p, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:9"}
connect: {url: "http://bob:geheim@127.0.0.1:9"}
views: {card: {root: orders}}
sinks: {cache: {type: redis, url: "redis://:geheim@127.0.0.1:9/0", view: card}}
engine: {state_dir: STATE}
"""


def headwater(*words: str) -> tuple[int, str]:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", "console.cli", *words]
    done = subprocess.run(
        command,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "a-file").write_text("x")
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT.replace("STATE", str(tmp_path / "a-file")))
    return path


@pytest.mark.parametrize("words", [("status", "FILE"), ("generations", "FILE"), ("rebuild", "FILE", "cache")])
def test_a_state_folder_that_is_a_file_is_told(pipeline: Path, words: tuple[str, ...]) -> None:
    code, said = headwater(*(str(pipeline) if word == "FILE" else word for word in words))
    assert code == 1
    assert "error [" in said and "a-file" in said and "what to do" in said
    assert "Traceback" not in said


def test_a_pack_that_can_not_be_written_is_told(pipeline: Path) -> None:
    code, said = headwater("pack", str(pipeline.parent / "a-file" / "python.tar.gz"))
    assert code == 1
    assert "can't be written" in said and "Traceback" not in said


def test_logins_in_addresses_are_not_printed(pipeline: Path, tmp_path: Path) -> None:
    pipeline.write_text(TEXT.replace("STATE", str(tmp_path / "state")))
    _, said = headwater("status", str(pipeline))
    assert "geheim" not in said
    connect = ConnectClient(Connect(url="http://bob:geheim@127.0.0.1:9"), patience_seconds=0.1)
    with pytest.raises(ConnectUnavailable) as refused:
        connect.plugins()
    assert "does not answer at http://bob:" in str(refused.value) and "geheim" not in str(refused.value)


@pytest.mark.parametrize("words", [("retire", "FILE", "cache"), ("drop", "FILE", "--sink", "cache")])
def test_what_is_asked_without_a_terminal_names_the_way_out(pipeline: Path, words: tuple[str, ...]) -> None:
    state = pipeline.parent / "state"
    pipeline.write_text(pipeline.read_text().replace("a-file", "state"))
    folder = state / "shop" / "cache"
    folder.mkdir(parents=True)
    stages = [{"number": 1, "stage": "previous"}, {"number": 2, "stage": "living"}]
    (folder / "generations.json").write_text(json.dumps({"last": 2, "generations": stages}))
    (folder.parent / CAPTURED).write_text("{}")
    code, said = headwater(*(str(pipeline) if word == "FILE" else word for word in words))
    assert code == 1
    assert "no terminal for an answer" in said and "nothing was removed" in said and "--yes" in said
    assert "interrupted" not in said and (folder / "generations.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop.yaml", "--json"], ODD.replace("apply FILE", "apply shop.yaml").replace("plan FILE", "plan shop.yaml")),
        (["my shop.yml"], ODD.replace("apply FILE", "apply 'my shop.yml'").replace("plan FILE", "plan 'my shop.yml'")),
        (["a.yaml", "b.yaml"], ODD),
        (["--port", "1"], ODD),
    ],
)  # fmt: skip
def test_commands_to_be_copied_have_the_file(words: list[str], said: str) -> None:
    assert _with_file(ODD, words) == said


@pytest.mark.parametrize("verb", [("list",), ("webhooks", "list")])
def test_the_file_and_what_is_to_be_done_with_letters_may_change_places(pipeline: Path, verb: tuple[str, ...]) -> None:
    usual, swapped = headwater("letters", str(pipeline), *verb), headwater("letters", *verb, str(pipeline))
    assert usual == swapped
    assert usual[1] and "No such command" not in usual[1]
