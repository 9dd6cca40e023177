"""Template, JSON Schema and documentation say what the models say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from cdc.pipeline import loads
from cdc.pipeline.file_keys import sections
from cdc.pipeline.reference import markdown
from cdc.pipeline.schema import json_schema
from cdc.pipeline.template import template

ROOT = Path(__file__).parents[3]
ENV = {
    "HEADWATER_SOURCE_PASSWORD": "a",
    "HEADWATER_SETUP_PASSWORD": "b",
    "CONNECT_PASSWORD": "c",
    "ELASTICSEARCH_PASSWORD": "d",
    "REDIS_PASSWORD": "d",
}


def uncommented(text: str) -> str:
    """The template with every key set."""
    return re.sub(r"^( *)#(?=[a-z_]+:)", r"\1", text, flags=re.MULTILINE)


def plain(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def errors(data: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema())
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(data)]


def test_the_template_is_a_pipeline() -> None:
    pipeline = loads(template(), "template.yaml", ENV)
    assert {sink.type for sink in pipeline.sinks.values()} == {"elasticsearch", "redis", "iceberg"}


def test_the_template_with_every_key_set_is_a_pipeline_too() -> None:
    pipeline = loads(uncommented(template()), "template.yaml", ENV)
    assert pipeline.views["customer"].where == "email IS NOT NULL"
    card = pipeline.views["customer_card"]
    assert (list(card.refs), list(card.children), list(card.aggregates)) == (["referrer"], ["orders"], ["spent"])
    assert card.children["orders"].limit == 20
    assert pipeline.kafka.options == {"security.protocol": "PLAINTEXT"}


def test_what_the_template_comments_out_as_default_is_the_default() -> None:
    bare, full = (loads(text, "t.yaml", ENV) for text in (template(), uncommented(template())))
    assert full.policy.alert is not None  # which has no default, but keys of its own
    assert bare.policy == full.policy.model_copy(update={"alert": None})
    examples = {"slot": "", "publication": "", "registry": None, "sslrootcert": None}
    assert bare.source.model_copy(update=examples) == full.source.model_copy(update=examples)


def test_no_key_is_missing_from_the_template() -> None:
    text = template()
    for section in sections():
        start = {"sinks": f"type: {section.kind}", "views": "views:", "queries": "# or: queries:"}.get(
            (section.path or ("",))[0]
        )
        begin = text.index(start) if start else text.index(f"\n{section.path[0]}:" if section.path else "version:")
        part = text[begin:].split("\n\n")[0] if section.path else text
        for key in section.keys:
            assert re.search(rf"^ *(# or: |#)?{key.name}:( |$)|^type: ", part, re.MULTILINE), (section.path, key.name)
            described = " ".join(line.strip().lstrip("# ") for line in text.splitlines())
            assert key.name == "type" or key.description in described


def test_every_key_says_what_it_is() -> None:
    for section in sections():
        assert section.description.endswith(".")
        for key in section.keys:
            assert key.description.endswith("."), (section.path, key.name)
            if key.kind.startswith(("number", "whole number")) and key.name != "port":
                assert key.unit, f"{section.path}.{key.name} has no unit"


def test_the_schema_is_a_schema_and_takes_template_and_examples() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert errors(plain(template())) == []
    assert errors(plain(uncommented(template()))) == []
    files = sorted((ROOT / "examples").glob("*/pipeline.yaml"))
    assert files
    for file in files:
        assert errors(plain(file.read_text())) == [], file


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("port: ${HEADWATER_POSTGRES_PORT:-5432}", "port: many"),
        ("port: ${HEADWATER_POSTGRES_PORT:-5432}", "port: 99999"),
        ("port: ${HEADWATER_POSTGRES_PORT:-5432}", "prt: 5432"),
        ("sslmode: prefer", "sslmode: sometimes"),
        ("name: shop", "name: Shop"),
        ("    root: customers", "    rot: customers"),
        ("    type: redis", "    type: radish"),
        ("tables: [public.customers, public.orders]", "tables: []"),
        ("  customer:\n", "  Not-A-Name:\n"),
        ("version: 1", "version: 2"),
        ("fields: {email_domain", "fields: {x: 1, email_domain"),
    ],
)
def test_the_schema_refuses_what_load_refuses(old: str, new: str) -> None:
    text = uncommented(template())
    assert text.count(old) >= 1
    text = text.replace(old, new, 1)
    assert errors(plain(text))
    with pytest.raises(Exception, match=r"^p\.yaml:\d+:\d+: "):
        loads(text, "p.yaml", ENV)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("port: ${HEADWATER_POSTGRES_PORT:-5432}", "port: 5432"),
        ("sslmode: prefer", "sslmode: ${SSLMODE:-require}"),
        ("heartbeat_seconds: 5", "heartbeat_seconds: ${BEAT:-7}"),
        ("partitions: 2", "partitions: ${PARTS:-3}"),
        ("name: shop", "name: ${NAME:-shop}"),
        ("ttl_seconds: 86400", "ttl_seconds: ${TTL:-}"),
    ],
)
def test_the_schema_takes_variables_where_load_does(old: str, new: str) -> None:
    text = uncommented(template()).replace(old, new, 1)
    assert errors(plain(text)) == []
    loads(text, "p.yaml", ENV)


def test_the_documentation_is_up_to_date() -> None:
    page = ROOT / "docs" / "pipeline-file.md"
    assert page.read_text() == markdown(), "run: python -m cdc.pipeline.reference > docs/pipeline-file.md"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "console.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)


def test_the_verbs_print_them() -> None:
    assert run("template").stdout == template()
    assert json.loads(run("schema").stdout) == json_schema()
    for verb in ("template", "schema"):
        assert "Examples:" in run(verb, "--help").stdout


def test_a_verb_ends_with_1_and_the_message(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\nnmae: x\n")
    done = run("status", str(file))
    assert done.returncode == 1
    assert f"error [pipeline-file]: {file}:1:1: missing key 'connect'" in done.stderr
    assert f"{file}:2:1: unknown key 'nmae'; did you mean 'name'?" in done.stderr
    assert "Traceback" not in done.stderr
