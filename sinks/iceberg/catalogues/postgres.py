"""The address of a Postgres catalogue, for the two clients that open it: Java's, which takes it as it is, and libpq,
which calls options otherwise and refuses those that it does not know. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode

from cdc.errors import ConfigError

_PARTS = re.compile(r"[a-z+]+://(?:(?P<who>[^/?]*)@)?(?P<hosts>[^/?@]*)(?:/(?P<database>[^?]*))?(?:\?(?P<options>.*))?")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+)?(?::(?P<port>\d{1,5}))?")
_EXAMPLE = "jdbc:postgresql://host:5432/database, or host1:5432,host2:5432; an IPv6 address in brackets"
# Options that both clients call so.
_BOTH = frozenset(("sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword"))
# Such as Java's client alone has, without a meaning for who opens the catalogue for a moment.
_JAVAS = frozenset(
    (
        "sockettimeout",
        "cancelsignaltimeout",
        "logintimeout",
        "preparethreshold",
        "preparedstatementcachequeries",
        "preparedstatementcachesizemib",
        "rewritebatchedinserts",
        "binarytransfer",
        "stringtype",
        "loggerlevel",
        "loggerfile",
        "defaultrowfetchsize",
        "disablecolumnsanitiser",
        "logunclosedconnections",
        "reportlanguage",
        "hostrecheckseconds",
    )
)
# Libpq's, which Java's client passes over.
_LIBPQS = frozenset(
    (
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "passfile",
        "require_auth",
        "sslcrl",
        "sslnegotiation",
        "sslsni",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "target_session_attrs",
        "tcp_user_timeout",
        "sslcertmode",
        "sslcrldir",
    )
)
# What Java's client calls otherwise: libpq's name, and its values where they are not the same.
_NAMES: Mapping[str, tuple[str, Mapping[str, str] | None]] = {
    "ssl": ("sslmode", {"true": "verify-full", "": "verify-full", "false": ""}),
    "applicationname": ("application_name", None),
    "connecttimeout": ("connect_timeout", None),
    "tcpkeepalive": ("keepalives", {"true": "1", "false": "0"}),
    "channelbinding": ("channel_binding", None),
    "gssencmode": ("gssencmode", None),
    "kerberosservername": ("krbsrvname", None),
    "sslnegotiation": ("sslnegotiation", None),
    "requireauth": ("require_auth", None),
    "loadbalancehosts": ("load_balance_hosts", {"true": "random", "false": "disable"}),
    "targetservertype": (
        "target_session_attrs",
        {
            "any": "any",
            "primary": "primary",
            "master": "primary",
            "secondary": "standby",
            "slave": "standby",
            "prefersecondary": "prefer-standby",
            "preferslave": "prefer-standby",
        },
    ),
}
# Said to libpq where the address says nothing of it. A host that has gone away without a word: bytes that nobody has
# confirmed for so long (milliseconds), or silence that so many questions of the kernel do not break (seconds), end the
# connection; the kernel's own keepalive takes two hours. And a server that accepts and lets nobody in is not there.
CONNECT_SECONDS = 10
_LIMITS = {
    "connect_timeout": str(CONNECT_SECONDS),
    "tcp_user_timeout": "30000",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}
# To Java's client likewise (which goes by the address first): a login that takes longer fails, on all hosts together,
# and the kernel looks whether the server's machine is there (after two hours, as Linux comes).
#
# No `socketTimeout`: it must not be ours to give up a commit. Iceberg's pool sends one whose answer has not come once
# more; has the first one been done meanwhile (a server that was frozen for so long, an UPDATE that waited for a lock),
# the second finds another row than it expects, and Iceberg removes the files of what it takes for a commit that failed,
# which is what the table's readers see.
JAVA_LIMITS = {"loginTimeout": "60", "tcpKeepAlive": "true"}


def addresses(url: str) -> tuple[str, str, dict[str, str]]:
    """The address of a catalogue, as each client takes it.

    Args:
        url: ``postgresql://…`` or ``postgres://…``, without ``jdbc:``.

    Returns:
        Java's, without credentials; SQLAlchemy's for psycopg, with them and with limits to what it waits for, where the
        address has none; {user, password}, those that are known.

    Raises:
        ConfigError: it is none, or has an option that libpq can't be told.
    """
    found = _PARTS.fullmatch(url)
    hosts = [_HOST.fullmatch(one) for one in found["hosts"].split(",")] if found else []
    if found is None or not all(hosts) or any(int(one["port"] or 1) not in range(1, 65536) for one in hosts if one):
        raise ConfigError("catalog_uri is no address of a Postgres database", fix=f"write {_EXAMPLE}")
    places = [(one["name"] or "localhost", one["port"] or "5432") for one in hosts if one]
    options = dict(parse_qsl(found["options"] or "", keep_blank_values=True))
    user, _, password = (found["who"] or "").partition(":")
    given = {"user": unquote(user), "password": unquote(password)}
    login = {name: value or options.get(name, "") for name, value in given.items()}
    login = {name: value for name, value in login.items() if value}
    options = {name: value for name, value in options.items() if name not in given}
    listed, database = ",".join(f"{name}:{port}" for name, port in places), found["database"] or ""
    query = "&".join(f"{name}={quote(value)}" for name, value in options.items())
    told = _LIMITS | libpq_options(options)
    if len(places) > 1:
        told |= {"host": ",".join(name.strip("[]") for name, _ in places), "port": ",".join(port for _, port in places)}
    who = ""
    if "user" in login:
        who = f"{quote(login['user'], safe='')}:{quote(login.get('password', ''), safe='')}@"
    place = listed if len(places) == 1 else ""
    ours = f"postgresql+psycopg://{who}{place}/{database}" + f"?{urlencode(told, quote_via=quote)}"
    return f"jdbc:postgresql://{listed}/{database}" + (f"?{query}" if query else ""), ours, login


def libpq_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a JDBC address as libpq calls them.

    Raises:
        ConfigError: one that it can't be told; by name, all values apart from that may be secret.
    """
    told: dict[str, str] = {}
    for name, value in options.items():
        low = name.lower()
        if name == "options" or low == "currentschema":
            said = value if name == "options" else f"-csearch_path={value}"
            told["options"] = f"{told.get('options', '')} {said}".strip()
        elif name in _BOTH | _LIBPQS:
            told[name] = value
        elif low in _NAMES:
            other, values = _NAMES[low]
            known = value if values is None else values.get(value.lower())
            if known is None:
                raise _unknown(f"{name}={value}")
            if known and (low != "ssl" or "sslmode" not in options):  # Java's client heeds sslmode first
                told[other] = known
        elif low not in _JAVAS:
            raise _unknown(name)
    return told


def _unknown(option: str) -> ConfigError:
    return ConfigError(
        f"catalog_uri has the option {option}, which pyiceberg's client (libpq) can't be told",
        means="Spark and all who look at the tables must open one catalogue in one way",
        fix="leave it out; sslmode, sslrootcert, currentSchema, targetServerType and ApplicationName are known to both",
    )
