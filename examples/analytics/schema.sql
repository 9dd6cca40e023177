-- Orders and who made them. Every statement can be run again.

CREATE TABLE IF NOT EXISTS cities (
    city_id integer PRIMARY KEY,
    name    text NOT NULL,
    country text NOT NULL
);

CREATE TABLE IF NOT EXISTS customers (
    customer_id integer PRIMARY KEY,
    name        text NOT NULL,
    city_id     integer REFERENCES cities
);

CREATE TABLE IF NOT EXISTS orders (
    order_id    integer PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customers,
    ordered_on  date NOT NULL,
    status      text NOT NULL,                           -- open, paid, cancelled
    total       numeric(12, 2) NOT NULL                  -- of its lines; both are written in one transaction
);

CREATE TABLE IF NOT EXISTS order_lines (
    order_id integer NOT NULL REFERENCES orders,
    line     integer NOT NULL,
    product  text NOT NULL,
    quantity integer NOT NULL,
    price    numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
