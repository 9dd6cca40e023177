-- What dbt's models must hold, by plain SQL over the source's own tables: model, and its row as JSON.
SELECT 'revenue_by_day' AS model, to_jsonb(t) AS row FROM (
    SELECT o.ordered_on, count(DISTINCT o.order_id) AS orders, sum(l.quantity * l.price) AS revenue
    FROM orders o JOIN order_lines l USING (order_id)
    WHERE o.status <> 'cancelled'
    GROUP BY o.ordered_on
) t
UNION ALL
SELECT 'revenue_as_it_was', to_jsonb(t) FROM (
    SELECT o.ordered_on, count(DISTINCT o.order_id) AS orders, sum(l.quantity * l.price) AS revenue
    FROM orders o JOIN order_lines l USING (order_id)
    WHERE o.status <> 'cancelled'
    GROUP BY o.ordered_on
) t
UNION ALL
SELECT 'customer_orders', to_jsonb(t) FROM (
    SELECT o.order_id, c.customer_id, c.name AS customer, t.name AS city, t.country, o.ordered_on, o.status,
        (SELECT count(*) FROM order_lines l WHERE l.order_id = o.order_id) AS lines,
        (SELECT sum(l.quantity * l.price) FROM order_lines l WHERE l.order_id = o.order_id) AS revenue
    FROM orders o JOIN customers c USING (customer_id) LEFT JOIN cities t USING (city_id)
) t;
