-- A new state of an order.
ALTER TYPE order_status ADD VALUE 'lost';
