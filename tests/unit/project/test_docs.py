"""The documentation says what the code does: these tests fail when one of the two moves alone."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cdc import errors
from cdc.errors import HeadwaterError
from cdc.pipeline import load
from cdc.pipeline.fields import NAME
from cdc.pipeline.sinks import SINKS
from connectors.database.grants import needed_rights
from connectors.names import Names
from console.cli.main import VERBS, cli
from spark.disk.state import OWN

ROOT = Path(__file__).parents[3]
PACKAGES = ("cdc", "connectors", "sinks", "spark", "truth", "operations", "console", "deploy", "examples")
MAX_LINES = 400
VARIABLE = re.compile(r"\bHEADWATER_[A-Z_]*[A-Z]\b")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tracked() -> tuple[Path, ...]:
    """Files of the repository, those that are not committed yet included, those that git ignores not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # a source archive without git
        found = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
        return tuple(path for path in found if path.is_file())
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def in_packages(*suffixes: str) -> list[Path]:
    return [p for p in tracked() if p.relative_to(ROOT).parts[0] in PACKAGES and (not suffixes or p.suffix in suffixes)]


def below(error: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    yield error
    for child in error.__subclasses__():
        yield from below(child)


# -- errors ------------------------------------------------------------------------------------------------------------


def documented_errors() -> dict[str, str]:
    """Code -> its section in docs/errors.md."""
    _, *sections = re.split(r"^## ", read("docs/errors.md"), flags=re.MULTILINE)
    return {section.split("\n", 1)[0].strip(): section for section in sections}


def our_errors() -> dict[str, type[HeadwaterError]]:
    return {error.code: error for error in below(HeadwaterError) if error.__module__ == "cdc.errors"}


def test_every_error_code_is_documented_and_no_other() -> None:
    assert documented_errors().keys() == our_errors().keys()


def test_error_codes_are_unique() -> None:
    errors = [error for error in below(HeadwaterError) if error.__module__ == "cdc.errors"]
    assert sorted(our_errors()) == sorted(error.code for error in errors)


def test_the_tree_that_the_module_of_errors_draws_is_that_of_its_classes() -> None:
    drawn, above = set(), ["HeadwaterError"]
    for branch, name, said in re.findall(r"^([│├└─ ]+)(\w+)(.*)$", errors.__doc__ or "", re.MULTILINE):
        above[len(branch) // 4 :] = [name]
        drawn.add((above[-2], name, "(transient)" in said))
    _, *ours = (error for error in below(HeadwaterError) if error.__module__ == "cdc.errors")
    assert drawn == {(error.__bases__[0].__name__, error.__name__, error.transient) for error in ours}


@pytest.mark.parametrize("code", sorted(our_errors()))
def test_an_error_is_documented_as_transient_or_not_and_with_a_way_out(code: str) -> None:
    section = documented_errors()[code]
    assert f"Transient: {'yes' if our_errors()[code].transient else 'no'}" in section
    assert "**Way out:**" in section


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["generate.py", "schema_changes.py", "openapi.py"])
def test_what_is_generated_is_current(script: str) -> None:
    argv = [sys.executable, str(ROOT / "docs" / script), "--check"]
    checked = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_documented_and_its_help_has_examples(verb: str) -> None:
    assert f"headwater {verb}" in read("README.md") + read("docs/cli.md")
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0, result.output
    examples = result.output.partition("Examples:\n")[2]
    assert f"headwater {verb}" in examples
    for line in command_lines(examples):
        check_command(line)


def exiting_with_two(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Commands whose own help says when they end with exit code 2."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from exiting_with_two(command, (*path, name))
        if re.search(r"Exit code.*\b2(:| when)", command.help or "", flags=re.DOTALL):
            yield " ".join((*path, name))


def test_every_verb_that_ends_with_exit_code_two_is_named_in_the_commands_help() -> None:
    told = (cli.help or "").partition("Exit codes:")[2]
    named = [
        re.sub(r" --.*", "", name)
        for found in re.findall(r"\((.*?)\)", told, re.DOTALL)
        for name in re.split(r",\s+", found)
    ]
    assert sorted(" ".join(name.split()) for name in named) == sorted(exiting_with_two(cli))


def command_lines(text: str) -> list[str]:
    """Lines that are a headwater command, as somebody would type them: without prompt, remark or background sign."""
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    lines = [re.split(r" {2,}\(| \|\|? | && | > | &$| {2,}#| #", line)[0] for line in lines]
    return [line for line in lines if line.startswith("headwater ")]


@pytest.mark.parametrize(("planned", "calls", "code"), [(0, "plan", 0), (1, "plan", 1), (2, "plan apply", 7)])
def test_the_line_that_plans_and_applies_applies_differences_alone(planned: int, calls: str, code: int) -> None:
    """Also in a script that ends at the first error: a plan with differences, and one without, are none."""
    help_ = CliRunner().invoke(cli, ["plan", "--help"]).output
    [line] = [line.strip() for line in help_.splitlines() if "$?" in line]
    stub = f'headwater() {{ echo "$1"; if [ "$1" = plan ]; then return {planned}; fi; return 7; }}'
    done = subprocess.run(["bash", "-ec", f"{stub}\n{line}"], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode, done.stderr) == (calls.split(), code, "")


def check_command(line: str) -> None:
    """A command line names a verb and options that exist, and gives each option that takes one a value."""
    _, verb, *words = shlex.split(line)
    assert verb in VERBS, f"{line}: there is no verb {verb}"
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    try:
        command.make_context(verb, words, resilient_parsing=False)
    except click.ClickException as error:
        pytest.fail(f"{line}: {error.format_message()}")


def blocks(text: str) -> str:
    """Code in a page: fenced blocks and indented ones."""
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    return fenced + "\n" + "\n".join(re.findall(r"^ {4}(\S.*)$", text, flags=re.MULTILINE))


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in command_lines(blocks(text)):
        if line.split()[1].isupper() or line == "headwater [OPTIONS] COMMAND [ARGS]...":
            continue
        check_command(line)


@pytest.mark.parametrize("page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_an_examples_psql_has_the_password_and_its_tools_are_named_in_the_readme(page: Path) -> None:
    needs = read("README.md").partition("\n## What you need\n")[2].partition("\n## ")[0]
    for line in blocks(page.read_text(encoding="utf-8")).splitlines():
        found = re.match(r"(PGPASSWORD=\S+ )?(psql|redis-cli|curl) ", line)
        if found:
            assert f"`{found[2]}`" in needs
            assert found[2] != "psql" or found[1] == 'PGPASSWORD="$HEADWATER_POSTGRES_PASSWORD" ', line


def test_the_readme_has_two_make_commands() -> None:
    lines = [line.strip() for line in blocks(read("README.md")).splitlines()]
    assert [line for line in lines if line.startswith("make")] == ["make demo", "make test"]


def test_the_readmes_pipeline_file_loads(tmp_path: Path) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```", read("README.md"), flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    values = {"KAFKA": "h:9092", "CONNECT": "http://h:8083", "ELASTICSEARCH": "http://h:9200"}
    env = {name: values.get(name.removeprefix("HEADWATER_"), "secret") for name in names(text)}
    assert load(file, env).sinks["search"].type == "elasticsearch"


@pytest.mark.parametrize(
    ("section", "types"), [("Elasticsearch and OpenSearch", ("elasticsearch", "opensearch")), ("Redis", ("redis",))]
)
def test_settings_of_a_sink_are_keys_that_its_pipeline_file_takes(section: str, types: tuple[str, ...]) -> None:
    text = read("docs/sinks.md").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    [table] = re.findall(r"^\| setting \|.*\n\|[ -|]+\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    keys = {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert keys
    for kind in types:
        assert keys - SINKS[kind].model_fields.keys() == set()


# -- variables, targets, links, sizes ----------------------------------------------------------------------------------


@cache
def variables(path: Path) -> set[str]:
    """Environment variables that a file names; in Python only in texts, since a constant may bear such a name too."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(VARIABLE.findall(text))
    nodes = ast.walk(ast.parse(text))
    return {name for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) for name in names(n.value)}


def names(text: str) -> list[str]:
    return VARIABLE.findall(text)


def test_every_environment_variable_is_documented() -> None:
    used = {name for path in in_packages(".py", ".yaml", ".sql", ".toml") for name in variables(path)}
    assert used, "no variable was found: is the search broken?"
    assert not used - set(names(read("docs/operations.md")))


def test_no_documented_variable_is_unknown_to_the_code() -> None:
    used = {name for path in in_packages(".py", ".yaml") for name in variables(path)}
    assert not set(names(read("docs/operations.md"))) - used


def test_every_make_target_says_what_it_does() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):(.*)$", read("Makefile"), flags=re.MULTILINE)
    assert {"demo", "test", "lint"} <= {name for name, _ in targets}
    assert not [name for name, rest in targets if not re.search(r"## \S", rest)]


def anchor(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT) and target.exists(), f"{page.name}: {link}"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert fragment in [anchor(heading) for heading in headings], f"{page.name}: {link}"


def test_every_page_and_decision_is_in_its_index() -> None:
    for index in ("docs/index.md", "docs/decisions/README.md"):
        folder = (ROOT / index).parent
        listed = set(re.findall(r"\]\(([\w-]+\.md)\)", read(index)))
        there = {p.name for p in folder.glob("*.md")} - {Path(index).name}
        assert there - listed == set(), index


def test_every_decision_says_what_would_change_it() -> None:
    """docs/decisions/README.md promises it."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name for page in pages if "would change our mind" not in page.read_text(encoding="utf-8")] == []


def test_source_files_in_the_pages_exist() -> None:
    """Paths like ``cdc/view.py`` in the prose, and names in them; what moves takes its mention along."""
    missing = []
    for page in pages():
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for path in re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|docs|benchmarks)/[\w/.-]+\.\w+)", text):
            if not (ROOT / path).exists() and not path.startswith("benchmarks/results"):
                missing.append(f"{page.relative_to(ROOT)}: {path}")
        for path, name in re.findall(r"`([\w/]+\.(?:py|java)): ([\w.]+)", text):
            words = set(re.findall(r"\w+", read(path))) if (ROOT / path).is_file() else set()
            if not words.issuperset(name.split(".")):
                missing.append(f"{page.relative_to(ROOT)}: {path}: {name}")
    assert not missing


def test_all_that_is_made_and_granted_in_the_database_is_documented() -> None:
    """Who prepares rights by hand, or has to answer for what an owner's run will change, goes by that page."""
    text, names = read("docs/connectors.md"), Names("headwater", "shop")
    made = [*names.tables, names.token_function, names.truncate_function]
    assert [name for name in made if not re.search(rf"^\| Postgres \|[^|]*`{name}`", text, re.M)] == []
    rows = re.findall(r"^\| ([A-Z, ]+) \| ([^|]+) \|", text.partition("## Roles")[2], re.M)
    granted = {(right, on) for rights, on in rows for right in rights.split(", ")}
    for right in needed_rights(names, ["public.orders"]):
        on = right.on.removeprefix("headwater.")
        meant = "schemas" if right.is_schema else "captured tables" if on == "public.orders" else f"`{on}`"
        assert any(right.privilege == one and meant in where for one, where in granted), right


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in in_packages(".py")}
    assert len(lengths) > 50
    assert not {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n >= MAX_LINES}


# -- the state folder --------------------------------------------------------------------------------------------------

# Names of files in the code that lie elsewhere: in `verify`'s own folder for its time.
ELSEWHERE = {"sizes.json"}


def state_tree() -> list[str]:
    """The names of the tree in docs/operations.md, a path of one line each as it stands there."""
    block = read("docs/operations.md").split("## The state folder")[1].split("```")[1]
    return [name for line in block.strip().splitlines() for name in re.split(r"  +", line.strip())[0].split(", ")]


def test_the_tree_of_the_state_folder_has_every_file_that_the_code_names() -> None:
    """What is not in it nobody copies, or removes for nothing."""
    said = " ".join(read("docs/operations.md").split("## The state folder")[1].split("```")[1].split())
    named = {
        name
        for path in in_packages(".py")
        if path.relative_to(ROOT).parts[0] in ("spark", "operations")
        for name in re.findall(r'(?:= |/ |, |\()"([a-z_]+\.json)"', path.read_text(encoding="utf-8"))
    }
    assert len(named) > 40
    assert sorted(name for name in named - ELSEWHERE if name not in said) == []


def test_no_sink_view_or_webhook_can_have_the_name_of_what_lies_beside_its_own() -> None:
    """A sink's folder lies in the pipeline's, a flow's in the generation's: each is called as its sink or view is."""
    beside = {part for path in state_tree() for part in path.split("/") if part and "<" not in part}
    # In folders where no user's names are, and those that a flow's folder makes room for.
    ours = {"resumed", "history", "former", "log", "checkpoint", "clocks", "state_dir", *OWN}
    assert sorted(name for name in beside - ours if re.fullmatch(NAME, name)) == []
