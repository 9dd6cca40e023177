{# A table as it is now, or, with `--vars '{cut: NAME}'`, as it was at a cut that has a name. #}
{% macro wanted(table, key) -%}
    {%- if var('cut', none) -%}{{ as_of(table, key, var('cut')) }}{%- else -%}{{ source('warehouse', table) }}{%- endif -%}
{%- endmacro %}

{# A table at a cut that `headwater as-of FILE --tag NAME` has made: every transaction up to there, whole, and none after
   it. So all tables that are read at one cut fit together, whatever is written meanwhile.
   A float of the key is given as `cast(NAME as varchar)`: 0 and -0 are two rows. #}
{% macro as_of(table, key, name) -%}
(
    select columns(c -> not starts_with(c, '_hw_'))
    from (
        select * from {{ source('warehouse', table ~ '_history') }}
        where _hw_after < {{ cut_of(table, name) }}
        qualify row_number() over (
            partition by {{ key | join(', ') }} order by _hw_position desc, _hw_offset desc
        ) = 1
    )
    where _hw_op <> 'delete'
)
{%- endmacro %}

{# Where a cut is. A table that was captured later may not have it: then it is refused, and nothing is read. #}
{% macro cut_of(table, name) -%}
    {%- if not execute -%}{{ return('0') }}{%- endif -%}
    {%- for row in _cuts() if row[0] == table ~ '_history' and row[1] == name -%}
        {{ return(row[2]) }}
    {%- endfor -%}
    {{ exceptions.raise_compiler_error("there is no cut " ~ name ~ " of " ~ table ~ ": `headwater as-of FILE --list`") }}
{%- endmacro %}

{# The names of the cuts that all of these tables have, the earliest first. #}
{% macro cut_names(tables) -%}
    {%- set found = {} -%}
    {%- for row in _cuts() -%}
        {%- for table in tables if row[0] == table ~ '_history' -%}
            {%- do found.update({row[1]: found.get(row[1], 0) + 1}) -%}
        {%- endfor -%}
    {%- endfor -%}
    {%- set names = [] -%}
    {%- for name in found if found[name] == tables | length -%}{%- do names.append(name) -%}{%- endfor -%}
    {{ return(names) }}
{%- endmacro %}

{% macro _cuts() -%}
    {%- if not execute -%}{{ return([]) }}{%- endif -%}
    {%- set text -%}
        select history, name, cut::varchar || '::bigint' from {{ source('warehouse', '_hw_cuts') }} order by cut, name
    {%- endset -%}
    {{ return(run_query(text).rows) }}
{%- endmacro %}

{# The cuts that an incremental model has, each as [its name, where it is]. A name alone does not say which cut it is:
   `--drop NAME`, then `--tag NAME` gives it to another one. #}
{% macro held_cuts(relation) -%}
    {%- if not execute -%}{{ return([]) }}{%- endif -%}
    {{- refuse_without(relation, 'cut_position') -}}
    {%- set found = [] -%}
    {%- for row in run_query("select distinct cut, cut_position::varchar || '::bigint' from " ~ relation).rows -%}
        {%- do found.append([row[0], row[1]]) -%}
    {%- endfor -%}
    {{ return(found) }}
{%- endmacro %}

{# What a model has of a name that another cut has now. A name that is gone keeps what it was. #}
{% macro forget_moved(relation, table) -%}
    delete from {{ relation }} as held using {{ source('warehouse', '_hw_cuts') }} as cuts
    where cuts.history = '{{ table }}_history' and cuts.name = held.cut and cuts.cut <> held.cut_position
{%- endmacro %}

{# An incremental model that was made before it had a column does not know what it has. #}
{% macro refuse_without(relation, column) -%}
    {%- if execute and column not in adapter.get_columns_in_relation(relation) | map(attribute='name') -%}
        {{ exceptions.raise_compiler_error(relation ~ " has no column " ~ column ~ ": run once with --full-refresh") }}
    {%- endif -%}
{%- endmacro %}
