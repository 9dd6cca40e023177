-- People, where they work and worked, and what they can do. Every statement can be run again.

CREATE TABLE IF NOT EXISTS companies (
    company_id integer PRIMARY KEY,
    name       text NOT NULL,
    industry   text NOT NULL
);

CREATE TABLE IF NOT EXISTS people (
    person_id   integer PRIMARY KEY,
    name        text NOT NULL,
    headline    text,
    hidden      boolean NOT NULL DEFAULT false,          -- not to be found
    employer_id integer REFERENCES companies ON UPDATE CASCADE ON DELETE SET NULL,
    manager_id  integer REFERENCES people ON UPDATE CASCADE ON DELETE SET NULL
);

CREATE TABLE IF NOT EXISTS positions (
    position_id integer PRIMARY KEY,
    person_id   integer NOT NULL REFERENCES people ON UPDATE CASCADE ON DELETE CASCADE,
    company_id  integer REFERENCES companies ON UPDATE CASCADE ON DELETE SET NULL,
    title       text NOT NULL,
    since       date NOT NULL,
    until       date                                     -- null: still there
);

CREATE TABLE IF NOT EXISTS skills (
    skill_id integer PRIMARY KEY,
    name     text NOT NULL UNIQUE
);

CREATE TABLE IF NOT EXISTS person_skills (               -- people ↔ skills
    person_id    integer NOT NULL REFERENCES people ON UPDATE CASCADE ON DELETE CASCADE,
    skill_id     integer NOT NULL REFERENCES skills ON UPDATE CASCADE ON DELETE CASCADE,
    endorsements integer NOT NULL DEFAULT 0,
    PRIMARY KEY (person_id, skill_id)
);
