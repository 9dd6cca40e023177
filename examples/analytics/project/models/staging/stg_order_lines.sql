select order_id, line, product, quantity, price, quantity * price as revenue
from {{ wanted('order_lines', ['order_id', 'line']) }}
-- depends_on: {{ source('warehouse', '_hw_cuts') }}
