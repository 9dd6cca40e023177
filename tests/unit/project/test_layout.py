"""Imports go one way: the contracts of import-linter in pyproject.toml, run as a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def lint_imports(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(config)]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def test_rooms_import_only_what_they_may() -> None:
    result = lint_imports(ROOT, ROOT / "pyproject.toml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_wrong_import_is_found(tmp_path: Path) -> None:
    """The check itself works: two rooms of our names, of which the lower imports the upper."""
    for room, line in (("lower_room", "import upper_room\n"), ("upper_room", "")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(line)
    config = tmp_path / ".importlinter"
    config.write_text(
        "[importlinter]\nroot_packages =\n    lower_room\n    upper_room\n"
        "[importlinter:contract:1]\nname = layers\ntype = layers\nlayers =\n    upper_room\n    lower_room\n"
    )
    result = lint_imports(tmp_path, config)
    assert result.returncode == 1
    assert "BROKEN" in result.stdout


def test_the_picture_of_the_rooms_names_each_folder() -> None:
    """Who looks for a thing begins at docs/architecture.md: a folder that it does not name is not found."""
    rows = [line for line in (ROOT / "docs" / "architecture.md").read_text().splitlines() if line.startswith("| `")]
    for room in ("cdc", "connectors", "sinks", "spark", "truth", "operations", "console", "deploy"):
        folders = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
        told = " ".join(row for row in rows if row.startswith((f"| `{room}/", f"| `{room}`")))
        assert not {name for name in folders if f"{name}/" not in told}, room
