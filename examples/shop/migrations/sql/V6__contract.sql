-- What nobody used goes; an article number may be longer.
ALTER TABLE customers DROP COLUMN loyalty;
ALTER TABLE products ALTER COLUMN sku TYPE text;
CREATE INDEX CONCURRENTLY products_tax ON products (tax);
