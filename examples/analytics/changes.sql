-- What makes yesterday's report another one today. Run it while the pipeline runs, and `dbt build` again.
UPDATE orders SET status = 'cancelled' WHERE order_id BETWEEN 10 AND 14;
UPDATE orders SET ordered_on = '2026-09-30' WHERE order_id = 20;        -- dated back, into a month that was closed
BEGIN;                                                                  -- one line more, and the total with it
INSERT INTO order_lines VALUES (30, 9, 'violin', 1, 1999.99);
UPDATE orders SET total = total + 1999.99 WHERE order_id = 30;
COMMIT;
BEGIN;                                                                  -- an order that never was
DELETE FROM order_lines WHERE order_id = 40;
DELETE FROM orders WHERE order_id = 40;
COMMIT;
BEGIN;
INSERT INTO orders VALUES (1001, 1, '2026-10-31', 'paid', 25.50);
INSERT INTO order_lines VALUES (1001, 1, 'lamp', 1, 5.50), (1001, 2, 'chair', 2, 10.00);
COMMIT;
UPDATE cities SET name = 'Gent' WHERE city_id = 3;                      -- in every row that shows it
UPDATE customers SET city_id = NULL WHERE customer_id = 5;
