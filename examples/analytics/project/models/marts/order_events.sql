-- Every change of an order, once. A run reads what history has gained: it grows by partition and offset. One that begins
-- anew under its name (the table has another primary key, the sink another namespace) is another history, whose offsets
-- begin anew too: all of it is gained, and what was taken of the former one stays. What that has gained since the last
-- run is in the former table alone.
{{ config(materialized='incremental', incremental_strategy='append', on_schema_change='fail') }}

{% if is_incremental() %}{{ refuse_without(this, 'history') }}{% endif %}
select
    known.uuid || '-' || _hw_partition || '-' || _hw_offset as event_id,
    order_id,
    _hw_op as change,
    status,
    total,
    _hw_commit_time as committed_at,
    _hw_tx as tx,
    known.uuid as history,
    _hw_partition as part,
    _hw_offset as place
from {{ source('warehouse', 'orders_history') }} as events
join {{ source('warehouse', '_hw_tables') }} as known on known.name = 'orders_history'
{% if is_incremental() %}
where _hw_offset > coalesce((
    select max(held.place) from {{ this }} as held where held.history = known.uuid and held.part = events._hw_partition
), -1)
{% endif %}
