"""A database of twelve tables that can be captured, with what real ones have, and some things that can't be.

Composite keys, a table that points at itself, tables between two others, names in mixed case, an enum, a password.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

SCHEMA = """
CREATE TYPE {grade} AS ENUM ('poor', 'fair', 'good');
CREATE TABLE {countries} (code char(2) PRIMARY KEY, name text NOT NULL);
CREATE TABLE {categories} (
    category_id integer PRIMARY KEY, name text NOT NULL, "position" integer NOT NULL,
    parent_id integer REFERENCES {categories});
CREATE TABLE {customers} (
    customer_id bigint PRIMARY KEY, name text NOT NULL, email text NOT NULL UNIQUE, password_hash text NOT NULL,
    country_code char(2) REFERENCES {countries}, referred_by bigint REFERENCES {customers}, rating real);
CREATE TABLE {addresses} (
    address_id integer PRIMARY KEY, customer_id bigint NOT NULL REFERENCES {customers}, street text, city text);
CREATE TABLE {products} (
    product_id integer PRIMARY KEY, sku text NOT NULL UNIQUE, title text NOT NULL, price numeric(10, 2) NOT NULL,
    category_id integer REFERENCES {categories}, outline polygon);
CREATE TABLE {tags} (tag_id integer PRIMARY KEY, word text NOT NULL);
CREATE TABLE {product_tags} (
    product_id integer REFERENCES {products}, tag_id integer REFERENCES {tags}, PRIMARY KEY (product_id, tag_id));
CREATE TABLE {orders} (
    order_id bigint PRIMARY KEY, customer_id bigint NOT NULL REFERENCES {customers}, placed timestamptz NOT NULL,
    ship_to integer REFERENCES {addresses}, bill_to integer REFERENCES {addresses},
    customer_email text REFERENCES {customers} (email));
CREATE TABLE {OrderItems} (
    "orderId" bigint REFERENCES {orders}, line smallint, "productId" integer NOT NULL REFERENCES {products},
    quantity integer NOT NULL, PRIMARY KEY ("orderId", line));
CREATE TABLE {reviews} (
    review_id integer PRIMARY KEY, product_id integer NOT NULL REFERENCES {products},
    author_id bigint NOT NULL REFERENCES {customers}, grade {grade} NOT NULL, body text,
    created_at timestamptz NOT NULL);
CREATE TABLE {shelves} (
    house text, number integer, label text, width integer, PRIMARY KEY (house, number));
CREATE TABLE {stock} (
    stock_id integer PRIMARY KEY, product_id integer NOT NULL REFERENCES {products}, house text, shelf integer,
    pieces integer NOT NULL, FOREIGN KEY (house, shelf) REFERENCES {shelves} (house, number));
CREATE TABLE {audit_log} (at timestamptz, what text);
CREATE UNLOGGED TABLE {sessions} (session_id integer PRIMARY KEY, customer_id bigint);
CREATE VIEW {busy} AS SELECT customer_id, count(*) FROM {orders} GROUP BY 1;
"""

ROWS = """
INSERT INTO {countries} VALUES ('FR', 'France'), ('NO', 'Norway');
INSERT INTO {categories} VALUES (1, 'all', 1, NULL), (2, 'boats', 1, 1), (3, 'oars', 2, 2);
INSERT INTO {customers} SELECT n, 'customer ' || n, n || '@example.org', 'hash', CASE WHEN n % 2 = 0 THEN 'FR' END,
    CASE WHEN n > 3 THEN n / 2 END, n * 0.1 FROM generate_series(1, 20) n;
INSERT INTO {addresses} SELECT n, 1 + n % 20, 'street ' || n, 'city' FROM generate_series(1, 30) n;
INSERT INTO {products} SELECT n, 'sku' || n, 'product ' || n, n * 1.5, 1 + n % 3, '((0,0),(1,1),(1,0))'
    FROM generate_series(1, 15) n;
INSERT INTO {tags} SELECT n, 'tag ' || n FROM generate_series(1, 5) n;
INSERT INTO {product_tags} SELECT p, t FROM generate_series(1, 15) p, generate_series(1, 5) t WHERE (p + t) % 3 = 0;
INSERT INTO {orders} SELECT n, 1 + n % 20, timestamptz '2026-01-01' + n * interval '1 hour', 1 + n % 30,
    CASE WHEN n % 3 = 0 THEN 1 + n % 7 END, (1 + n % 20) || '@example.org' FROM generate_series(1, 60) n;
INSERT INTO {OrderItems} SELECT o, l, 1 + (o + l) % 15, l FROM generate_series(1, 60) o, generate_series(1, 3) l;
INSERT INTO {reviews} SELECT n, 1 + n % 15, 1 + n % 20, (ARRAY['poor', 'fair', 'good'])[1 + n % 3]::{grade},
    'body ' || n, timestamptz '2026-02-01' + n * interval '1 hour' FROM generate_series(1, 40) n;
INSERT INTO {shelves} SELECT h, n, h || n, n * 10 FROM unnest(ARRAY['a', 'b']) h, generate_series(1, 3) n;
INSERT INTO {stock} SELECT n, 1 + n % 15, (ARRAY['a', 'b'])[1 + n % 2], 1 + n % 3, n FROM generate_series(1, 30) n;
INSERT INTO {audit_log} VALUES (now(), 'nothing');
"""

TABLES = (
    *("countries", "categories", "customers", "addresses", "products", "tags", "product_tags", "orders", "OrderItems"),
    *("reviews", "shelves", "stock"),
)
OTHERS = ("grade", "audit_log", "sessions", "busy")


def fill(connection: psycopg.Connection, prefix: str = "") -> None:
    """Make the tables and their rows.

    Args:
        connection: of their owner, autocommit.
        prefix: what every name begins with: views, and so indices, are named after tables.
    """
    names = {name: sql.Identifier(prefix + name) for name in (*TABLES, *OTHERS)}
    for text in (SCHEMA, ROWS):
        connection.execute(sql.SQL(text).format(**names))
