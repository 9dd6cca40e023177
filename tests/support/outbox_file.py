"""The head of a pipeline file whose source has an outbox; its views and sinks are each test's own."""

HEAD = """\
version: 1
name: shop
source:
  database: shop
  user: u
  tables: [public.orders, public.outbox]
  outbox: {table: public.outbox, types: [order, customer]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
"""
