-- A page is its edits: nothing of its text is in its own row. Every statement can be run again.

CREATE TABLE IF NOT EXISTS editors (
    editor_id integer PRIMARY KEY,
    name      text NOT NULL
);

CREATE TABLE IF NOT EXISTS pages (
    page_id      integer PRIMARY KEY,
    title        text NOT NULL UNIQUE,
    current_edit bigint                       -- edits.edit_id; the two tables point at each other, so it is not declared
);

CREATE TABLE IF NOT EXISTS edits (
    edit_id   bigint PRIMARY KEY,
    page_id   integer NOT NULL REFERENCES pages ON UPDATE CASCADE ON DELETE CASCADE,
    editor_id integer REFERENCES editors ON UPDATE CASCADE ON DELETE SET NULL,   -- null: anonymous
    edited_at timestamptz NOT NULL,
    minor     boolean NOT NULL DEFAULT false,
    summary   text,
    delta     integer NOT NULL,               -- characters more or fewer than before
    body      text NOT NULL                   -- the whole page after this edit
);
