-- Every change of an order, once. A run reads what history has gained: it grows by partition and offset.
{{ config(materialized='incremental', incremental_strategy='append') }}

select
    _hw_partition || '-' || _hw_offset as event_id,
    order_id,
    _hw_op as change,
    status,
    total,
    _hw_commit_time as committed_at,
    _hw_tx as tx,
    _hw_partition as part,
    _hw_offset as place
from {{ source('warehouse', 'orders_history') }} as history
{% if is_incremental() %}
where _hw_offset > coalesce((select max(held.place) from {{ this }} as held where held.part = history._hw_partition), -1)
{% endif %}
