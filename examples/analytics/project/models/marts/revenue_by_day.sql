select o.ordered_on, count(distinct o.order_id) as orders, sum(l.revenue) as revenue
from {{ ref('stg_orders') }} as o
join {{ ref('stg_order_lines') }} as l using (order_id)
where o.status <> 'cancelled'
group by o.ordered_on
