"""What an erasure says of what it could not remove: a document that is still there, files of nobody's."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.view import View
from operations.erase import eraser, servers
from operations.erase.eraser import Eraser, Options
from operations.erase.log import InLog
from operations.erase.places import Place, settled
from tests.unit.test_erase import PERSONS, build, subject


@pytest.mark.parametrize(("there", "left"), [([], 0), (["7"], 1)])
def test_a_document_that_is_still_there_is_left_and_changes_that_came_since_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], left: int
) -> None:
    """A view whose changes are kept was left out of the last look, and its document told as gone."""
    made, one = [build(tmp_path, View.identity(PERSONS))], subject(tmp_path, "7")
    target = SimpleNamespace(get=lambda _, keys: {key: 1 for key in keys if key in there}, kept_changes=lambda _: 3)
    monkeypatch.setattr(servers, "holding", lambda *_: nullcontext(SimpleNamespace(target=target)))
    monkeypatch.setattr(servers, "files_of", lambda _: [])
    before = servers.look(one, made)
    assert [(place.kind, place.found, place.hidden) for place in before] == [("cache", left, 3)]

    monkeypatch.setattr(servers, "erase_files", lambda *_: [Place("cache", "files of h", "cache")])
    monkeypatch.setattr(servers, "erase_changes", lambda *_: None)
    for name, found in {"row_in_log": InLog("t"), "erase_tables": []}.items():
        monkeypatch.setattr(eraser, name, lambda *_, found=found: found)
    letters = SimpleNamespace(supersede=lambda: 0, look=lambda _: InLog("letters"))
    looked = SimpleNamespace(log=InLog("t"), letters=InLog("letters"))
    after = Eraser(one, Options(act=True))._erase(cast(Any, letters), made, cast(Any, looked))
    [cache, *_] = settled(before, after)
    assert (cache.left, cache.hidden_left, cache.empty) == (left, 0, not left)
    assert [place.name for place in after].count("files of h") == 1
