-- A rate for every product, and another one for some, in one transaction.
BEGIN;
ALTER TABLE products ADD COLUMN tax numeric(4, 2) NOT NULL DEFAULT 19.00;
UPDATE products SET tax = 7.00 WHERE product_id % 5 = 0;
COMMIT;
