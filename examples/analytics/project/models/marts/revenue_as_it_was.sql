-- The same report at each cut that has a name: a run adds the cuts that are new. What a day was said to have brought,
-- and when that was said. --full-refresh computes it again, from the same history. A name that was given to another cut
-- is that cut's: what it was before goes.
{{ config(
    materialized='incremental', incremental_strategy='append', on_schema_change='fail',
    pre_hook="{% if is_incremental() %}{{ forget_moved(this, 'orders') }}{% endif %}"
) }}

-- depends_on: {{ source('warehouse', '_hw_cuts') }}
-- depends_on: {{ source('warehouse', 'orders_history') }} {{ source('warehouse', 'order_lines_history') }}
{% set held = held_cuts(this) if is_incremental() else [] %}

{% for name in cut_names(['orders', 'order_lines']) if [name, cut_of('orders', name)] not in held %}
select
    '{{ name }}' as cut,
    {{ cut_of('orders', name) }} as cut_position,
    o.ordered_on,
    count(distinct o.order_id) as orders,
    sum(l.quantity * l.price) as revenue
from {{ as_of('orders', ['order_id'], name) }} as o
join {{ as_of('order_lines', ['order_id', 'line'], name) }} as l using (order_id)
where o.status <> 'cancelled'
group by o.ordered_on
union all
{% endfor %}
-- Without a cut: no row, and the types that one will have.
select
    null::varchar as cut, null::bigint as cut_position, o.ordered_on,
    count(distinct o.order_id) as orders, sum(l.quantity * l.price) as revenue
from {{ source('warehouse', 'orders_history') }} as o
join {{ source('warehouse', 'order_lines_history') }} as l using (order_id)
where false
group by o.ordered_on
