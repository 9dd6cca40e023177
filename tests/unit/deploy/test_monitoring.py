"""What goes by `/metrics`: rules and dashboard name what there is, and promtool finds what rules do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from operations.metrics.pipelines import metrics
from operations.status.judgement import BAD, JUDGEMENTS
from tests.support import promtool
from tests.support.metric_cases import NAME, ROOT, named, paused, pipeline
from tests.support.standing_file import noted

MONITORING = ROOT / "deploy/monitoring"


def rules() -> list[dict[str, Any]]:
    found = YAML(typ="safe").load((MONITORING / "alerts.yaml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    queries = [str(one["query"]) for one in board["templating"]["list"]]
    return queries + [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_rules_and_dashboard_name_only_metrics_and_judgements_that_there_are(tmp_path: Path) -> None:
    known = named(metrics([pipeline(tmp_path), paused(tmp_path / "paused", 1.0), noted(tmp_path / "standing")]))
    used = [rule["expr"] for rule in rules()] + expressions()
    assert len(used) > 20
    for expression in used:
        assert set(NAME.findall(expression)) <= known, expression
        for words in re.findall(r'judgement=~?"([a-z|]+)"', expression):
            assert set(words.split("|")) <= set(JUDGEMENTS), expression


def test_every_bad_judgement_of_a_sink_and_of_the_source_has_a_rule() -> None:
    for metric in ("headwater_sink_judgement", "headwater_source_judgement"):
        told = {
            word
            for rule in rules()
            for words in re.findall(metric + r'\{judgement=~?"([a-z|]+)"', rule["expr"])
            for word in words.split("|")
        }
        assert told >= BAD, metric


def test_a_dashboard_is_whole() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    assert board["title"] and board["uid"] and board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_each_rule_has_a_test_in_which_it_fires_and_all_have_one_in_which_none_does() -> None:
    well, *groups = YAML(typ="safe").load((MONITORING / "alerts.test.yaml").read_text())["tests"]
    assert all(one["expr"].endswith('(ALERTS{alertstate="firing"})') for one in well["promql_expr_test"])
    fires = {case["alertname"] for group in groups for case in group["alert_rule_test"] if case["exp_alerts"]}
    assert fires == {rule["alert"] for rule in rules()}
    # What a rule is about is there when it is to be silent.
    names = {name for rule in rules() for name in re.findall(r"\bheadwater_[a-z_]+\b|\bup\b", rule["expr"])}
    assert names == {one["series"].split("{")[0] for one in well["input_series"]}


needs_promtool = pytest.mark.skipif(promtool.found() is None, reason=promtool.MISSING)


def asked(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [promtool.found() or "promtool", *words]
    return subprocess.run(command, cwd=MONITORING, input=text, capture_output=True, text=True, check=False)


@needs_promtool
def test_the_rules_do_what_they_are_to_do() -> None:
    for words in (["check", "rules", "--lint-fatal", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = asked(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", [rule["alert"] for rule in rules()])
def test_a_rule_that_never_fires_is_found(name: str, tmp_path: Path) -> None:
    """The tests of the rules can fail: each rule in turn is made one that is never so."""
    text = (MONITORING / "alerts.yaml").read_text()
    broken = YAML(typ="safe").load(text)
    [rule] = [rule for group in broken["groups"] for rule in group["rules"] if rule["alert"] == name]
    rule["expr"] = f"({rule['expr']}) > 1e18"
    with (tmp_path / "alerts.yaml").open("w") as out:
        YAML().dump(broken, out)
    shutil.copy(MONITORING / "alerts.test.yaml", tmp_path)
    done = asked("test", "rules", str(tmp_path / "alerts.test.yaml"))
    assert done.returncode and name in done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_what_is_told(tmp_path: Path) -> None:
    done = asked("check", "metrics", text=metrics([pipeline(tmp_path)]))
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@needs_promtool
def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    asks = [re.sub(r"\$\w+", "x", text) for text in expressions() if not text.startswith("label_values")]
    made = {"groups": [{"name": "board", "rules": [{"record": f"r{n}", "expr": text} for n, text in enumerate(asks)]}]}
    path = tmp_path / "board.yaml"
    path.write_text(json.dumps(made))
    done = asked("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
