"""TRUNCATE: a log of keys and rows has no word for it, so it is refused, or done row by row.

``refuse``: a trigger raises an error that names Headwater and the way out. ``propagate``: a trigger deletes the rows
first, so that ordinary deletes and their tombstones flow, and then lets TRUNCATE have the empty table. Postgres lets a
referenced table be truncated only together with the tables that refer to it, and fires the triggers in its own order:
so the trigger deletes the rows of all referring tables too, to any depth, in one statement. One, because foreign keys
in a cycle are only satisfied when all of it is gone, and their checks run at a statement's end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from psycopg import sql

from connectors.actions import Action, statements
from connectors.names import Names, identifier
from connectors.postgres import Connection, explained
from connectors.tables.facts import TableFacts
from connectors.tables.row_security import HIDES_FROM_ME

REFUSE = """
BEGIN
    RAISE EXCEPTION 'headwater: TRUNCATE of % is refused by policy.truncate of pipeline %', TG_RELID::regclass, {name}
        USING ERRCODE = 'feature_not_supported',
              DETAIL = 'A captured table cannot be truncated: the views that are kept in sync would keep its rows.',
              HINT = 'Use DELETE FROM; or set policy.truncate to propagate in the pipeline file and apply it.';
END
"""

# Deferred foreign keys would look for their rows at commit, when TRUNCATE has thrown the heap away and Postgres can't
# find them ("failed to fetch tuple1"): they are checked here, and deferred again.
PROPAGATE = """
DECLARE
    doomed regclass[];
    deferrable_keys text[];
    deferred_keys text[];
    deletes text;
    again boolean;
    reach text;
BEGIN
    WITH RECURSIVE truncated(id) AS (
        SELECT TG_RELID
        UNION
        SELECT k.conrelid
        FROM truncated t
        CROSS JOIN LATERAL (SELECT t.id UNION SELECT a.relid FROM pg_partition_ancestors(t.id) a) AS up(id)
        JOIN pg_constraint k ON k.confrelid = up.id AND k.contype = 'f'
    )
    SELECT array_agg(id::regclass ORDER BY id) INTO doomed FROM truncated;

    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY(doomed) AND {hides}) THEN
        PERFORM set_config('row_security', 'on', true);
    END IF;

    SELECT string_agg(
        format('d%s AS (DELETE FROM %s %s)', nth, CASE WHEN c.relkind = 'p' THEN '' ELSE 'ONLY' END, id), ', ')
    INTO deletes
    FROM unnest(doomed) WITH ORDINALITY AS t(id, nth) JOIN pg_class c ON c.oid = t.id;
    EXECUTE 'WITH ' || deletes || ' SELECT 1';

    SELECT array_agg(format('%I.%I', n.nspname, k.conname)),
           array_agg(format('%I.%I', n.nspname, k.conname)) FILTER (WHERE k.condeferred)
    INTO deferrable_keys, deferred_keys
    FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace
    WHERE k.condeferrable AND k.conparentid = 0 AND (k.conrelid = ANY(doomed) OR k.confrelid = ANY(doomed));
    IF deferrable_keys IS NOT NULL THEN
        EXECUTE 'SET CONSTRAINTS ' || array_to_string(deferrable_keys, ', ') || ' IMMEDIATE';
    END IF;
    IF deferred_keys IS NOT NULL THEN
        EXECUTE 'SET CONSTRAINTS ' || array_to_string(deferred_keys, ', ') || ' DEFERRED';
    END IF;

    SELECT CASE WHEN relkind = 'p' THEN '' ELSE 'ONLY' END INTO reach FROM pg_class WHERE oid = TG_RELID;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s %s)', reach, TG_RELID::regclass) INTO again;
    IF again THEN
        RAISE EXCEPTION
            'headwater: rows of % could not be deleted before TRUNCATE (does a trigger or a policy keep them?)',
            TG_RELID::regclass USING HINT = 'Delete the rows, then truncate; or set policy.truncate to refuse.';
    END IF;
    RETURN NULL;
END
""".replace("{hides}", HIDES_FROM_ME)

TRIGGERS = """
SELECT n.nspname || '.' || c.relname, t.tgenabled, fn.nspname || '.' || f.proname
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_namespace fn ON fn.oid = f.pronamespace
WHERE t.tgname = %s AND NOT t.tgisinternal
"""


def function_body(names: Names, policy: str) -> str:
    """The trigger function's body for a policy."""
    if policy == "refuse":
        return REFUSE.replace("{name}", "'" + names.name.replace("'", "''") + "'")
    return PROPAGATE


def plan_truncate(
    connection: Connection, names: Names, facts: Collection[TableFacts], policy: str, *, adds_only: bool = False
) -> tuple[list[Action], list[Action]]:
    """Actions for function and triggers.

    Args:
        connection: the setup role's.
        names: the pipeline's.
        facts: of the captured tables; partitions get the trigger too, for they can be truncated on their own.
        policy: ``refuse`` or ``propagate``.
        adds_only: a function that is there stays as it is.

    Returns:
        Actions to do at first, and actions that remove triggers from tables that are no longer captured.
    """
    body = function_body(names, policy)
    with explained("reading triggers"):
        found = connection.execute(
            "SELECT prosrc, has_function_privilege('public', p.oid, 'EXECUTE')"
            " FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE nspname = %s AND proname = %s",
            [names.schema, names.truncate_function],
        ).fetchone()
        there = {
            table: (enabled, function)
            for table, enabled, function in connection.execute(TRIGGERS, [names.truncate_trigger])
        }
    wanted = {table for fact in facts for table in (fact.name, *fact.partitions)}
    actions = []
    function = names.qualified(names.truncate_function)
    if found is None or (not adds_only and (found[0] != body or found[1])):
        detail = "create" if found is None else "change" if found[0] != body else "close"
        actions.append(_function(names, body, policy, detail))
    for table in sorted(wanted):
        if there.get(table) != ("A", function):
            actions.append(_trigger(names, table, policy))
    return actions, [_removal(names, table) for table in sorted(set(there) - wanted)]


def _function(names: Names, body: str, policy: str, detail: str) -> Action:
    # SECURITY DEFINER: the right to truncate a table is not the right to delete from it and from those referring to it.
    # row_security = off: a policy that would hide rows from the delete is an error instead of a row that stays behind.
    # The body sets it to on where none hides any, which Postgres would refuse as well; that ends with the function.
    create = sql.SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp SET row_security = off AS {}"
    ).format(names.identifier(names.truncate_function), sql.Literal(body))
    # Whoever may execute it can make it the trigger of a table of his own: the delete from that, and so his triggers,
    # would run as the owner. To be fired needs no right, and a replaced function keeps the rights that it had.
    close = sql.SQL("REVOKE EXECUTE ON FUNCTION {}() FROM PUBLIC").format(names.identifier(names.truncate_function))
    name = names.qualified(names.truncate_function)
    run = statements(f"creating function {name}", create, close)
    return Action("trigger", name, f"{detail} function (policy.truncate: {policy})", None, policy, run)


def _trigger(names: Names, table: str, policy: str) -> Action:
    trigger, on = sql.Identifier(names.truncate_trigger), identifier(table)
    parts = [
        sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(trigger, on),
        sql.SQL("CREATE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}()").format(
            trigger, on, names.identifier(names.truncate_function)
        ),
        # ALWAYS: also when another subscription applies a TRUNCATE here (session_replication_role = replica).
        sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(on, trigger),
    ]
    run = statements(f"creating the truncate trigger on {table}", *parts)
    return Action("trigger", table, f"on TRUNCATE: {policy}", None, policy, run)


def _removal(names: Names, table: str) -> Action:
    drop = sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(names.truncate_trigger), identifier(table))
    run: Any = statements(f"dropping the truncate trigger on {table}", drop)
    return Action("trigger", table, "remove the TRUNCATE trigger", "present", None, run)


def drop_triggers(connection: Connection, names: Names) -> list[str]:
    """Drop this pipeline's triggers wherever they are; returns the tables."""
    with explained("dropping the truncate triggers"):
        tables = sorted(table for table, _, _ in connection.execute(TRIGGERS, [names.truncate_trigger]))
        for table in tables:
            drop = sql.SQL("DROP TRIGGER IF EXISTS {} ON {}")
            connection.execute(drop.format(sql.Identifier(names.truncate_trigger), identifier(table)))
        return tables
