"""Writes of a Django application whose pipeline is gone: prints as JSON what became of each.

``python -m tests.support.django_gone '{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}'``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import django
from django.conf import settings
from headwater_client.session import Tokens, begin, current


def main(database: dict[str, str]) -> dict[str, object]:
    """Write in each way there is; what was said, and which rows are there."""
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()
    from django.db import connection, transaction
    from headwater_client.django import written

    def execute(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def in_a_transaction() -> None:
        with transaction.atomic():
            execute("INSERT INTO gone VALUES (1)")
            written("gone")
            execute("INSERT INTO gone VALUES (2)")

    def after_it() -> None:
        execute("INSERT INTO gone VALUES (3)")
        written("gone")

    def by_hand() -> None:
        transaction.set_autocommit(False)
        try:
            execute("INSERT INTO gone VALUES (4)")
            written("gone")
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

    def in_one_that_has_failed() -> None:
        with transaction.atomic():
            execute("INSERT INTO gone VALUES (5)")
            transaction.set_rollback(True)
            written("gone")

    begin(Tokens())
    execute("CREATE TABLE gone (id int)")
    try:
        ways = (in_a_transaction, after_it, by_hand, in_one_that_has_failed)
        said = {way.__name__: _said(way) for way in ways}
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM gone ORDER BY id")
            return {"said": said, "rows": [row[0] for row in cursor.fetchall()], "tokens": len(current())}
    finally:
        execute("DROP TABLE gone")


def _said(write: Callable[[], None]) -> str:
    try:
        write()
    except Exception as error:
        return type(error).__name__
    return "written"


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
