-- The same report at each cut that has a name: a run adds the cuts that are new. What a day was said to have brought,
-- and when that was said. --full-refresh computes it again, from the same history.
{{ config(materialized='incremental', incremental_strategy='append') }}

-- depends_on: {{ source('warehouse', '_hw_cuts') }}
-- depends_on: {{ source('warehouse', 'orders_history') }} {{ source('warehouse', 'order_lines_history') }}
{% set held = [] %}
{% if is_incremental() %}
    {% set held = run_query('select distinct cut from ' ~ this).columns[0].values() %}
{% endif %}

{% for name in cut_names(['orders', 'order_lines']) if name not in held %}
select
    '{{ name }}' as cut,
    o.ordered_on,
    count(distinct o.order_id) as orders,
    sum(l.quantity * l.price) as revenue
from {{ as_of('orders', ['order_id'], name) }} as o
join {{ as_of('order_lines', ['order_id', 'line'], name) }} as l using (order_id)
where o.status <> 'cancelled'
group by o.ordered_on
union all
{% endfor %}
select
    null::varchar as cut, null::date as ordered_on, null::bigint as orders, null::decimal(38, 2) as revenue
where false
