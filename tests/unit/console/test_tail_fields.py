"""`tail --fields` says which of its names no document has."""

from __future__ import annotations

import pytest

from console.cli.tail import _Unknown
from operations.push.events import Told


def test_a_misspelt_field_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = _Unknown(["status", "totel"], "order")
    unknown.look(Told("reset", b'{"why":"it is new"}'))
    unknown.look(Told("change", b'{"before":null,"after":null}'))
    assert capsys.readouterr().err == ""
    unknown.look(Told("change", b'{"before":{"status":"new"},"after":null}'))
    assert capsys.readouterr().err == "no field 'totel' in documents of 'order': is it misspelt?\n"
    unknown.look(Told("change", b'{"before":null,"after":{"status":"new"}}'))
    assert capsys.readouterr().err == ""


def test_known_fields_are_no_matter(capsys: pytest.CaptureFixture[str]) -> None:
    _Unknown(["total"], "order").look(Told("snapshot", b'{"documents":[{"key":"1","document":{"total":1}}]}'))
    assert capsys.readouterr().err == ""
