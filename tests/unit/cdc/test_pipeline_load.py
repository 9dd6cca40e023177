"""The pipeline file is read with the place of every mistake, and no secret of it is ever shown."""

# ruff: noqa: E501 - tables of files and messages

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from cdc.errors import PipelineFileError
from cdc.pipeline import ElasticsearchSink, IcebergSink, Pipeline, RedisSink, load, loads, looks_secret, reveal
from cdc.pipeline.document import MAX_BYTES, MAX_EXPANDED, MAX_NODES
from tests.support.minimal_file import ENV, MINIMAL, bad


def good(text: str = MINIMAL, **env: str) -> Pipeline:
    return loads(text, "p.yaml", ENV | env)


def changed(old: str, new: str) -> str:
    assert MINIMAL.count(old) == 1, old
    return MINIMAL.replace(old, new)


def test_the_smallest_file_and_its_defaults() -> None:
    pipeline = good()
    assert pipeline.source.password.get_secret_value() == "hunter2!secret"
    assert (pipeline.source.slot, pipeline.source.publication) == ("headwater_shop", "headwater_shop")
    assert pipeline.source.schema_ == "headwater"
    assert pipeline.kafka.topic_prefix == "shop"
    assert pipeline.topic("public.customers") == "shop.public.customers"
    assert pipeline.policy.truncate == "refuse"
    assert pipeline.source.tables == ("public.customers", "public.orders")
    assert isinstance(pipeline.sinks["search"], ElasticsearchSink)
    assert pipeline.engine.max_offsets_per_trigger == 200_000
    assert good() == pipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_every_kind_of_sink_has_its_model() -> None:
    text = MINIMAL + (
        "  cache: {type: redis, url: 'redis://localhost', views: [customer]}\n"
        "  lake: {type: iceberg, tables: all, catalog_uri: c.db, warehouse: w, namespace: shop}\n"
    )
    pipeline = good(text)
    assert isinstance(pipeline.sinks["cache"], RedisSink)
    assert isinstance(pipeline.sinks["lake"], IcebergSink)
    assert pipeline.sinks["lake"].tables == "all"


def test_the_pipeline_does_not_change() -> None:
    with pytest.raises(Exception, match="frozen"):
        good().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  user: headwater", "  usr: headwater", "p.yaml:5:3: unknown key 'usr' in source; did you mean 'user'?"),
        ("  user: headwater\n", "", "p.yaml:3:1: missing key 'user' in source"),
        ("  user: headwater", "  user:", "p.yaml:5:3: source.user has no value"),
        ("  user: headwater", "  user: 7", "p.yaml:5:9: source.user: expected text, got a whole number\n"),
        ("  user: headwater", "  user: [a]", "p.yaml:5:3: source.user: expected text, got a list"),
        ("  user: headwater", "  user: a\n  port: '5432'", "p.yaml:6:9: source.port: expected a whole number, got text"),
        ("  user: headwater", "  user: a\n  port: 70000", "p.yaml:6:9: source.port: expected at most 65535"),
        ("  user: headwater", "  user: a\n  port: 5.5", "p.yaml:6:9: source.port: expected a whole number, got a number"),
        ("  user: headwater", "  user: a\n  port: true", "p.yaml:6:9: source.port: expected a whole number, got true"),
        ("  user: headwater", "  user: a\n  heartbeat_seconds: 0", "p.yaml:6:22: source.heartbeat_seconds: expected more"),
        ("  user: headwater", "  user: a\n  heartbeat_seconds: .inf", "p.yaml:6:22: source.heartbeat_seconds: expected"),
        ("  user: headwater", "  user: a\n  sslmode: requir", "p.yaml:6:12: source.sslmode: expected 'disable', 'allow'"),
        ("  user: headwater", "  user: a\n  user: b", "p.yaml:6:3: key 'user' is here a second time"),
        ("public.orders]", "orders]", "p.yaml:7:30: source.tables[2]: expected schema.table or schema.*"),
        ("[public.customers, public.orders]", "public.orders", "p.yaml:7:11: source.tables: expected a list"),
        ("[public.customers, public.orders]", "[]", "p.yaml:7:3: source.tables: expected at least 1"),
        ("version: 1", "version: 2", "p.yaml:1:10: version: expected 1"),
        ("name: shop", "name: Shop", "p.yaml:2:7: name: expected 1 to 40 lower-case letters"),
        ("  customer:\n", "  Customer-1:\n", "p.yaml:13:3: views: the name 'Customer-1' is not allowed: expected 1 to 63"),
        ("    root: customers", "    root: customers\n    ref: {}", "p.yaml:15:5: unknown key 'ref' in views.customer\n  what to do: did you mean 'refs'"),
        ("    root: customers", "    root: customers\n    columns: [{a: b, c: d}]", "views.customer.columns[1]: expected a"),
        ("    root: customers", "    root: customers\n    columns: [a, {b: 1}]", "p.yaml:15:22: views.customer.columns[2].b:"),
        ("    root: customers", "    root: customers\n    fields: {late: 5}", "p.yaml:15:20: views.customer.fields.late:"),
        ("type: elasticsearch", "type: elasticserch", "p.yaml:17:11: sinks.search.type: expected 'elasticsearch', 'opensearch', 'redis'"),
        ("    type: elasticsearch\n", "", "p.yaml:16:3: missing key 'type' in sinks.search"),
        ("    view: customer", "    tables: some", "p.yaml:19:13: sinks.search.tables: expected 'all' or a list of tables"),
        ("    view: customer", "    view: customer\n    mapping: {a: keyword}", "p.yaml:20:18: sinks.search.mapping.a: exp"),
        ("localhost:9092", "localhost", "p.yaml:9:14: kafka.bootstrap: expected host:port"),
        ("http://localhost:8083", "localhost:8083", "p.yaml:11:8: connect.url: expected http://host:port"),
        ("localhost:9092", "localhost:9092\n  options: {a.b: [1]}", "p.yaml:10:13: kafka.options.a.b: expected text, a"),
        ("sinks:\n", "sinks: {}\nx:\n", "p.yaml:15:1: sinks: expected at least 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(old: str, new: str, message: str) -> None:
    said = bad(changed(old, new))
    assert said.startswith("p.yaml:")
    assert message in said


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("through_tables", "many-to-many: `children` with `hide: true` and a ref below it: docs/from-pgsync.md"),
        ("through", "many-to-many: `children` with `hide: true` and a ref below it: docs/from-pgsync.md"),
        ("relationship", "rows that this row points at are `refs`, rows that point at it `children`: docs/from"),
        ("variant", "is `value: column`: docs/from-pgsync.md"),
        ("label", "the key under `refs` or `children` is the name in the document: docs/from-pgsync.md"),
    ],
)
def test_pgsyncs_words_in_a_view_are_answered_with_ours(key: str, hint: str) -> None:
    below = f"    children: {{x: {{table: orders, on: {{a: b}}, {key}: y}}}}"
    said = bad(changed("    root: customers", f"    root: customers\n{below}"))
    assert f"unknown key '{key}' in views.customer.children.x\n  what to do: " in said and hint in said
    assert "from-pgsync" not in bad(changed("  user: headwater", f"  user: headwater\n  {key}: y"))


def test_several_mistakes_are_told_together_in_the_file_s_order() -> None:
    text = changed("name: shop", "name: 5").replace("bootstrap", "bootstap").replace("  user: headwater\n", "")
    lines = bad(text).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["p.yaml:2:7:", "p.yaml:3:1:", "p.yaml:7:1:", "p.yaml:8:3:"]


def test_a_list_is_not_called_empty_for_what_is_wrong_in_it() -> None:
    said = bad(changed("[public.customers, public.orders]", "['public.shop_*']"))
    assert "source.tables[1]: expected schema.table" in said and "at least" not in said
    assert "source.tables: expected at least 1 of them" in bad(changed("[public.customers, public.orders]", "[]"))


def test_no_more_than_twenty_are_told() -> None:
    lines = bad(MINIMAL + "".join(f"x{n}: 1\n" for n in range(30))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "p.yaml:1:1: the file is empty"),
        (b"# nothing\n", "p.yaml:1:1: the file is empty"),
        (b"--- \n...\n", "p.yaml:1:1: the file is empty"),
        (b"- a\n", "p.yaml:1:1: expected a mapping (`key: value` lines), got a list"),
        (b"hello", "p.yaml:1:1: expected a mapping"),
        (b"a: 1\nb: \xff\xfe\n", "p.yaml:2:4: this byte is not UTF-8"),
        ("é: \x00".encode(), "p.yaml:1:4: a character that YAML does not allow"),
        (b"a:\n\tb: 1\n", "p.yaml:2:1: a tab where YAML wants spaces"),
        (b"a: 1\n---\nb: 2\n", "p.yaml:2:1: a second document begins here"),
        (b"a: *gone\n", "p.yaml:1:4: an alias (*name) of an anchor that is not there"),
        (b"a: &x [*x]\n", "p.yaml:1:8: an alias inside of what it stands for"),
        (b"a: !!python/object:os.system x\n", "p.yaml:1:4: tags (!name) mean nothing here"),
        (b"a: [1, 2\n", "p.yaml:2:1: not valid YAML: [ of line 1, column 4, is still open here\n  what to do: close it with ], or"),
        (b"a: {b: 1\nc: 2\n", "p.yaml:2:2: not valid YAML: { of line 1, column 4, is still open here"),
        (b"a: {url: ${X}}\n", 'p.yaml:1:11: not valid YAML: expected ...\n  what to do: inside { } and [ ], put a variable in quotes: "${NAME}"'),
        (b"? [a]\n: 1\n", "p.yaml:1:3: a key must be a name"),
        (b"a: " + b"[" * 60, "p.yaml:1:44: nested deeper than 40"),
        (b"x" * (MAX_BYTES + 1), "p.yaml:1:1: the file is larger than 4096 KiB"),
        (b"%YAML 9.9.9\n---\na: 1\n", "p.yaml:1:1: not valid YAML"),
        (b'a: "\\UFFFFFFFF"\n', "p.yaml:1:1: not valid YAML"),
        (b'a: "x\\ud800"\n', "p.yaml:1:4: an escape"),
        (b'a: "x\\0"\n', "p.yaml:1:4: an escape"),
        (b'"\\udc00": 1\n', "p.yaml:1:1: a key that is not text"),
    ],
)  # fmt: skip
def test_what_is_not_a_pipeline_file_s_yaml(text: bytes, message: str) -> None:
    said = bad(text)
    assert message.split(":", maxsplit=1)[0] == "p.yaml"
    head = message.split(": ", 1)
    assert said.startswith("p.yaml:")
    assert head[1] in said, said
    if "not valid" not in message:
        assert said.startswith(head[0]), said


def test_an_alias_bomb_costs_nothing() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    started = time.monotonic()
    assert f"more than {MAX_EXPANDED} values" in bad("\n".join(rows))
    assert time.monotonic() - started < 2


def test_a_large_file_costs_a_bounded_time() -> None:
    started = time.monotonic()
    said = bad("a:\n" + "  - 1\n" * 170_000)
    assert f"more than {MAX_NODES} values" in said
    assert time.monotonic() - started < 10


def test_anchors_aliases_and_merges_work_and_keep_their_places() -> None:
    text = changed("    root: customers", "    &one\n    root: customers\n  again:\n    <<: *one\n    where: a IS NULL")
    pipeline = good(text)
    assert pipeline.views["again"].root == "customers"
    assert str(pipeline.locate(("views", "again", "root"))) == "p.yaml:15:11"


def test_a_file_that_can_t_be_read(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        (Path("a\0b"), "name"),
    ):
        with pytest.raises(PipelineFileError) as caught:
            load(path, {})
        assert str(caught.value).startswith(f"{path}:1:1: the pipeline file can't be read: ")
        assert reason in str(caught.value)


# -- variables ---------------------------------------------------------------------------------------------------------


def test_variables_in_texts_numbers_and_choices() -> None:
    text = changed(
        "  user: headwater", "  user: a-${U}-b\n  port: ${PORT}\n  sslmode: ${SSL:-require}\n  host: ${H:-h}"
    )
    text = text.replace("public.customers,", '"${S}.customers", ').replace("view: customer", "view: ${V:-customer}")
    pipeline = good(text, U="u", PORT="6000", H="", S="public")
    source = pipeline.source
    assert (source.user, source.port, source.sslmode, source.host) == ("a-u-b", 6000, "require", "h")
    assert source.tables[0] == "public.customers"
    assert type(source.host) is str
    assert type(pipeline.sinks["search"].view) is str


def test_a_variable_s_text_adds_no_structure() -> None:
    evil = 'x", tables: [a.b] # \n  user: root'
    assert good(**{"PW": evil}).source.password.get_secret_value() == evil
    assert good(changed("user: headwater", "user: ${U}"), U="[a, b]").source.user == "[a, b]"
    assert good(changed("user: headwater", "user: ${U}"), U="${PW}").source.user == "${PW}"


def test_a_variable_that_is_not_text_is_refused() -> None:
    said = bad(changed("user: headwater", "user: a${U}"), U="x\udcff")
    assert said == "p.yaml:5:10: environment variable U is not UTF-8 text"


def test_only_a_whole_variable_becomes_a_number() -> None:
    assert "got text" in bad(changed("  user: headwater", "  user: a\n  port: 1${P}"), P="5")
    assert "something else" in bad(changed("  user: headwater", "  user: a\n  port: ${P}"), P="secret")
    assert "secret" not in bad(changed("  user: headwater", "  user: a\n  port: ${P}"), P="secret")


def test_a_missing_variable_is_named_with_its_place_and_nothing_else_is() -> None:
    text = changed("  user: headwater", "  user: ${GONE}\n  port: ${PORT_GONE}\n  host: a-${ALSO_GONE}")
    lines = bad(text).splitlines()
    assert [line.partition(" is not set")[0] for line in lines] == [
        "p.yaml:5:9: environment variable GONE",
        "p.yaml:6:9: environment variable PORT_GONE",
        "p.yaml:7:11: environment variable ALSO_GONE",
    ]


def test_an_empty_variable_is_as_good_as_left_out() -> None:
    pipeline = good(changed("  user: headwater", "  user: a\n  port: ${P:-}\n  setup_user: ${S:-}"))
    assert (pipeline.source.port, pipeline.source.setup_user) == (5432, None)
    assert "source.user has no value" in bad(changed("user: headwater", "user: ${S:-}"))


def test_escapes_and_what_begins_no_variable() -> None:
    assert good(changed("user: headwater", "user: $${A} $B $$")).source.user == "${A} $B $$"
    said = bad(changed("user: headwater", "user: ab${pa$$word"))
    assert "p.yaml:5:11: ${ begins no variable" in said
    assert "word" not in said.replace("password", "")


def test_variables_can_t_make_the_file_huge() -> None:
    text = changed("user: headwater", "user: " + "${BIG}" * 1000)
    assert "more text here than 64 KiB" in bad(text, BIG="x" * 1000)


# -- secrets -----------------------------------------------------------------------------------------------------------

SECRETS = """\
version: 1
name: shop
source: {database: shop, user: u, password: s3cr3t-1, setup_user: o, setup_password: s3cr3t-2, tables: [a.b]}
kafka:
  bootstrap: localhost:9092
  options: {sasl.password: s3cr3t-3, ssl.key.password: s3cr3t-4, sasl.username: s3cr3t-5, sasl.mechanisms: PLAIN, client.id: shown}
connect: {url: "http://me:s3cr3t-6@localhost:8083", user: u, password: s3cr3t-7, options: {my.secret: s3cr3t-8, n: true}}
sinks:
  a: {type: elasticsearch, url: "https://u:s3cr3t-9@h:9200", api_key: s3cr3t-10, tables: all}
  b: {type: redis, url: "redis://:s3cr3t/11@h:6379/0", tables: all}
  c: {type: iceberg, catalog_uri: "jdbc:postgresql://h/d?user=u&password=s3cr3t-12", warehouse: w, namespace: n, tables: all}
engine: {spark_conf: {spark.hadoop.fs.s3a.secret.key: s3cr3t-13}}
"""  # fmt: skip


def test_secrets_are_there_but_never_shown() -> None:
    pipeline = loads(SECRETS, "p.yaml", {})
    assert pipeline.kafka.client()["sasl.password"] == "s3cr3t-3"
    assert pipeline.sinks["b"].url == "redis://:s3cr3t/11@h:6379/0"  # type: ignore[union-attr]
    assert pipeline.engine.spark_conf["spark.hadoop.fs.s3a.secret.key"] == "s3cr3t-13"
    assert reveal(pipeline.sinks["a"])["api_key"] == "s3cr3t-10"
    assert isinstance(pipeline.connect.options["my.secret"], SecretStr)
    assert pipeline.connect.options["n"] == "true"
    shown = [repr(pipeline), str(pipeline), pipeline.model_dump_json()]
    shown += [repr(sink) for sink in pipeline.sinks.values()] + [
        repr(pipeline.kafka),
        pipeline.connect.model_dump_json(),
    ]
    shown += [str(pipeline.error_at(("source", "password"), "wrong")), f"{pipeline.source}"]
    for text in shown:
        assert "s3cr3t" not in text, text
    assert "shown" in pipeline.model_dump_json()


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("password", True),
        ("ssl.key.password", True),
        ("sasl.mechanism", True),
        ("sasl.username", True),
        ("basic.auth.user.info", True),
        ("fs.s3a.access.key", True),
        ("api_key", True),
        ("auth.token", True),
        ("tokenizer", False),
        ("max_token_length", False),
        ("token_chars", False),
        ("client.id", False),
        ("key.converter", False),
    ],
)
def test_keys_that_look_secret(key: str, secret: bool) -> None:
    assert looks_secret(key) is secret


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("password: ${PW}", "password: [s3cr3t]"),
        ("password: ${PW}", "password: {s3cr3t: x}"),
        ("password: ${PW}", "password:s3cr3t"),
        ("password: ${PW}", "password: *s3cr3t"),
        ("password: ${PW}", "password: !s3cr3t"),
        ("password: ${PW}", "password: &s3cr3t"),
        ("password: ${PW}", "password: s3cr3t\n  password: s3cr3t"),
        ("password: ${PW}", "password: s3cr3t: x"),
        ("password: ${PW}", "password: 's3cr3t"),
        ("password: ${PW}", 'password: "s3cr3t\\q"'),
        ("password: ${PW}", "password: %s3cr3t"),
        ("password: ${PW}", "password: @s3cr3t"),
        ("password: ${PW}", "password: ${s3cr3t!"),
        ("password: ${PW}", "pasword: s3cr3t"),
        ("password: ${PW}", "password s3cr3t!: x"),
        ("password: ${PW}", "'pass word:s3cr3t': x"),
        ("  bootstrap: localhost:9092", "  bootstrap: s3cr3t"),
        ("  url: http://localhost:8083", "  url: s3cr3t"),
        ("name: shop", "name: S3cr3t"),
        ("version: 1", "version: s3cr3t"),
        ("    type: elasticsearch", "    type: s3cr3t"),
    ],
)
def test_an_error_shows_no_value(old: str, new: str) -> None:
    text = changed(old, new)
    said = bad(text) if "&" not in new else bad(text + "x: 1\n")
    assert "s3cr3t" not in said.lower()


def test_an_error_carries_no_secret_in_its_cause() -> None:
    import traceback

    text = changed("name: shop", "name: [s3" + "cr3t]")
    with pytest.raises(PipelineFileError) as caught:
        loads(text, "p.yaml", ENV)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


# -- places and hashes -------------------------------------------------------------------------------------------------


def test_later_checks_can_name_places() -> None:
    pipeline = good(changed("    root: customers", "    root: customers\n    columns: [id, {nmae: title}]"))
    assert str(pipeline.locate(("views", "customer", "root"))) == "p.yaml:14:11"
    assert str(pipeline.locate(("views", "customer", "columns", 0))) == "p.yaml:15:15"
    assert str(pipeline.locate(("views", "customer", "columns"))) == "p.yaml:15:5"
    assert str(pipeline.locate(("policy", "toast"))) == "p.yaml:1:1"
    assert str(pipeline.locate(("sinks", "search", "index"))) == "p.yaml:17:3"
    error = pipeline.error_at(("views", "customer", "root"), "there is no such table", "did you mean x?")
    assert str(error) == "p.yaml:14:11: there is no such table\n  what to do: did you mean x?"


def test_a_pipeline_from_no_file_has_no_places() -> None:
    pipeline = Pipeline.model_validate(
        {
            "version": 1,
            "name": "x",
            "source": {"database": "d", "user": "u", "tables": ["a.b"]},
            "kafka": {"bootstrap": "h:1"},
            "connect": {"url": "http://h:1"},
            "sinks": {"s": {"type": "redis", "url": "redis://h", "tables": "all"}},
        }
    )
    assert str(pipeline.locate(("name",))) == ""
    assert str(pipeline.error_at(("views", "a"), "wrong")) == "views.a: wrong"


def test_the_hash_changes_with_the_content_only() -> None:
    def of(text: str, **env: str) -> str:
        return good(text, **env).spec_hash("search")

    first = of(MINIMAL)
    assert first == of(MINIMAL) == "e04c916e2091a813"
    same = [
        ("PW", changed("    url: http://localhost:9200", "    url: http://elsewhere:9200\n    bulk_workers: 7")),
        ("PW", changed("    view: customer", "    views: [customer]")),
        ("PW", changed("    root: customers", "    root: customers\n  other:\n    root: orders")),
        ("PW", changed("  database: shop", "  database: shop\n  port: 99")),
    ]
    for _, text in same:
        assert of(text) == first
    assert of(MINIMAL, PW="another") == first
    different = [
        changed("    root: customers", "    root: customers\n    where: a IS NULL"),
        changed("    root: customers", "    root: customers\n    columns: [a, b]"),
        changed("    root: customers", "    root: customers\n    columns: [b, a]"),
        changed("    view: customer", "    view: customer\n    index: other"),
        changed("    view: customer", "    view: customer\n    mapping: {a: {type: text}}"),
        changed(
            "    view: customer", "    view: customer\n    settings: {analysis: {tokenizer: {t: {type: standard}}}}"
        ),
        changed(
            "    view: customer", "    view: customer\n    settings: {analysis: {tokenizer: {t: {type: keyword}}}}"
        ),
        changed("    view: customer", "    tables: all"),
        changed("localhost:9092", "localhost:9092\n  topic_prefix: other"),
    ]
    assert len({first, *map(of, different)}) == len(different) + 1


def test_the_package_knows_no_network_and_no_other_room() -> None:
    code = (
        "import sys, cdc.pipeline\n"
        "bad = {'psycopg', 'confluent_kafka', 'requests', 'redis', 'elasticsearch', 'pyspark', 'urllib3', 'http.client',"
        " 'connectors', 'sinks', 'spark', 'console', 'deploy'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("port", "advised"), [("'5432'", True), ("'abc'", False), ("'5 432'", False)])
def test_quotes_are_to_be_taken_away_of_what_is_a_number_without_them(port: str, advised: bool) -> None:
    said = bad(changed("  user: headwater", f"  user: a\n  port: {port}"))
    assert ("take the quotes away" in said) is advised
