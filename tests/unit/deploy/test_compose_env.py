"""The .env of docker-compose.yml is made once and brought up to date: what the servers know already stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.compose.env import PASSWORDS, main
from deploy.images.catalog import IMAGES, ROOT, variables

HEADWATER = IMAGES["headwater"]


def call(file: Path, *options: str) -> str:
    done = CliRunner().invoke(main, ["--output", str(file), *options])
    assert done.exit_code == 0, done.output
    return done.output


def values(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_new_one_is_whole_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    call(file, "--images")
    assert file.stat().st_mode & 0o777 == 0o600
    assert set(values(file)) == {"COMPOSE_PROJECT_NAME", *PASSWORDS, *variables()}
    assert all(values(file).values())
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


def test_a_second_call_keeps_passwords_and_own_lines_and_renews_images(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    call(file)
    passwords = values(file)
    own = "# my own\nHEADWATER_PORT_KAFKA=9092\nMINE='a=b'\nHEADWATER_IMAGE_REDIS=registry.example/redis:1\n"
    file.write_text(f"{own}{HEADWATER.variable}=headwater/headwater:0.0.1\n{file.read_text()}")
    file.chmod(0o644)
    said = call(file)
    assert file.read_text().startswith(f"{own}{HEADWATER.variable}={HEADWATER.tag}\n")
    assert passwords.items() <= values(file).items()
    assert file.stat().st_mode & 0o777 == 0o600
    assert HEADWATER.variable in said and PASSWORDS[0] not in said
    assert "nothing to change" in call(file)


def test_images_asked_for_are_all_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    call(file)
    file.write_text(file.read_text() + "HEADWATER_IMAGE_REDIS=registry.example/redis:1\n")
    call(file, "--images")
    assert variables().items() <= values(file).items()
    assert file.read_text().count("HEADWATER_IMAGE_REDIS=") == 1


def test_a_copy_of_the_example_gets_its_passwords(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text((ROOT / "deploy/compose/example.env").read_text())
    call(file)
    assert all(values(file)[name] for name in PASSWORDS)
    assert file.read_text().count(f"{PASSWORDS[0]}=") == 1


def test_a_stack_without_a_project_name_gets_none(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}=x\n" for name in PASSWORDS))
    call(file)
    assert set(values(file)) == set(PASSWORDS), "another project would have other volumes"


def test_what_a_shell_has_left_empty_is_filled_and_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / ".env").symlink_to("real")
    call(tmp_path / ".env")
    assert (tmp_path / ".env").is_symlink()
    assert set(values(tmp_path / "real")) == {"COMPOSE_PROJECT_NAME", *PASSWORDS}


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".env"
    file.write_text("MINE=1\n")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deploy.compose.env.os.fsync", full)
    done = CliRunner().invoke(main, ["--output", str(file)])
    assert done.exit_code == 1 and "No space left" in done.output
    assert file.read_text() == "MINE=1\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_dash_prints_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(PASSWORDS) <= {line.split("=")[0] for line in call(Path("-")).splitlines()}
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named_and_not_what_would_be_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--output", str(tmp_path / "no" / ".env")])
    assert done.exit_code == 1 and f"{tmp_path / 'no'}: there is no such folder" in done.output
