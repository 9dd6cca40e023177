-- A joined view's document taken apart: its city is a struct, its orders a list of structs, and so are their lines.
select
    o.order_id,
    c.customer_id,
    c.name as customer,
    c.city.name as city,
    c.city.country as country,
    o.ordered_on,
    o.status,
    len(o.lines) as lines,
    list_sum([l.quantity * l.price for l in o.lines]) as revenue
from {{ source('warehouse', 'customer') }} as c, unnest(c.orders) as one(o)
