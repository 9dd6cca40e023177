-- An order's total and its lines are written in one transaction: half of one would show here.
{% for name in cut_names(['orders', 'order_lines']) %}
select '{{ name }}' as cut, order_id, o.total, l.total as of_lines
from {{ as_of('orders', ['order_id'], name) }} as o
full join (
    select order_id, sum(quantity * price) as total
    from {{ as_of('order_lines', ['order_id', 'line'], name) }}
    group by order_id
) as l using (order_id)
where o.total is distinct from l.total
union all
{% endfor %}
select null, null, null, null where false
-- depends_on: {{ source('warehouse', '_hw_cuts') }}
-- depends_on: {{ source('warehouse', 'orders_history') }} {{ source('warehouse', 'order_lines_history') }}
