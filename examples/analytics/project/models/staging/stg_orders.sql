select order_id, customer_id, ordered_on, status, total
from {{ wanted('orders', ['order_id']) }}
-- depends_on: {{ source('warehouse', '_hw_cuts') }}
