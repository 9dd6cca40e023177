-- The shelf that two clients change. The statements can be run again; load.reset() puts the rows back.
CREATE TABLE IF NOT EXISTS products (
    id    integer PRIMARY KEY,
    name  text NOT NULL,
    price numeric(10, 2) NOT NULL,
    stock integer NOT NULL
);
