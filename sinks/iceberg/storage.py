"""Where a warehouse's files are: a folder, or a bucket of a server that speaks S3's protocol.

Credentials come from the environment alone, under the names that every S3 client knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cdc.errors import ConfigError, SinkError, SinkRefused, SinkUnavailable
from cdc.waits import waiting_for
from sinks.iceberg.place import Place

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

KEY, SECRET, SESSION = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
ENDPOINTS, REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")
# Servers that are not AWS have regions in name only, and every client wants one.
ANY_REGION = "us-east-1"
CONNECT_SECONDS, REQUEST_SECONDS = 5, 60
# What AWS's client says in front of its reason, in pyarrow's errors.
_AWS = "AWS Error "
_PASSING = (
    "NETWORK_CONNECTION",
    "SLOW_DOWN",
    "INTERNAL_FAILURE",
    "SERVICE_UNAVAILABLE",
    "REQUEST_TIMEOUT",
    "THROTTLING",
)
# What its libcurl has against a server's TLS, which AWS's client calls a broken connection too: a certificate that is
# not trusted, a file of authorities that can't be read, a server that speaks plain HTTP.
_TLS = re.compile(r"curlCode: (?:60|77|35(?=.*wrong version number)), (.*)", re.DOTALL)


def location(warehouse: str) -> str:
    """The warehouse folder: a URI as it is, a path made absolute. A plain path rather than ``file:``, because Hadoop,
    pyiceberg and DuckDB each spell ``file:`` URIs differently and write theirs into the metadata."""
    if warehouse.startswith("file:"):
        return unquote(urlsplit(warehouse).path)
    if "://" in warehouse:
        return warehouse.rstrip("/")
    return str(Path(warehouse).expanduser().absolute())


def on_s3(place: Place) -> bool:
    """Whether the files are in a bucket."""
    return place.warehouse.startswith("s3://")


def endpoint(place: Place) -> str | None:
    """Address of the S3 server: the file's, else the environment's; None for AWS itself."""
    return place.s3_endpoint or _first(ENDPOINTS)


def spark_properties(place: Place) -> dict[str, str]:
    """What Iceberg's S3FileIO takes; nothing for a folder.

    The keys go along, because executors on other machines do not have our environment.

    Raises:
        ConfigError: a key is missing in the environment; named.
    """
    if not on_s3(place):
        return {}
    key, secret, session = credentials(place)
    style = _path_style(place)
    return _present(
        {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": endpoint(place),
            "client.region": _region(place),
            "s3.path-style-access": None if style is None else str(style).lower(),
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "s3.session-token": session,
        }
    )


def pyiceberg_properties(place: Place) -> dict[str, str]:
    """The same for pyiceberg, which reads with pyarrow's own S3 client.

    Raises:
        ConfigError: a key is missing in the environment; named.
    """
    if not on_s3(place):
        return {}
    key, secret, session = credentials(place)
    style = _path_style(place)
    return _present(
        {
            "s3.endpoint": endpoint(place),
            "s3.region": _region(place),
            "s3.force-virtual-addressing": None if style is None else str(not style).lower(),
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "s3.session-token": session,
            "s3.connect-timeout": str(CONNECT_SECONDS),
            "s3.request-timeout": str(REQUEST_SECONDS),
        }
    )


def credentials(place: Place) -> tuple[str | None, str | None, str | None]:
    """(key, secret, session token) from the environment; all None where AWS's own chain finds them (the machine's role,
    a profile), or where a REST catalogue may hand them out with a table.

    Raises:
        ConfigError: one is missing, or both on a server that is not AWS.
    """
    key, secret = os.environ.get(KEY), os.environ.get(SECRET)
    if key and secret:
        return key, secret, os.environ.get(SESSION) or None
    needed = endpoint(place) is not None and not place.catalog_uri.startswith(("http://", "https://"))
    missing = [name for name, value in ((KEY, key), (SECRET, secret)) if not value]
    if key or secret or needed:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            means=f"the bucket of {place.warehouse} can't be opened without; nothing was done",
            fix="set the variable in the environment of every command; it does not belong into the pipeline file",
        )
    return None, None, None


def check(place: Place) -> None:
    """Look whether the place for the files is there; changes nothing.

    Raises:
        ConfigError: a credential is missing. SinkRefused: the bucket is not there, or not for us, or a file is in the
            folder's place. SinkUnavailable: the server does not answer, or the folder can't be written to (transient).
    """
    if not on_s3(place):
        if "://" not in location(place.warehouse):
            check_folder(Path(location(place.warehouse)))
        return
    from pyarrow.fs import FileType

    bucket = urlsplit(place.warehouse).netloc
    with named(place):
        found = filesystem(place).get_file_info(bucket)
    if found.type == FileType.NotFound:
        raise _no_bucket(place)


def check_folder(folder: Path) -> None:
    """Look whether a folder is there, or can be made, and written to.

    Raises:
        SinkRefused: a file is in its way. SinkUnavailable: it can't be written to, as where a disk with errors was made
            read-only, or rights were changed: whoever kept a table there goes on when that is over (transient).
    """
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        raise SinkRefused(
            f"the warehouse's folder {folder} can't be made: {there} is a file",
            fix="remove that, or choose another place",
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise SinkUnavailable(
            f"the warehouse's folder {folder} can't be made or written to: {there} is read-only, or not for this user",
            fix="look at the disk and its mount, or give the rights to this user; or choose another place",
        )


def filesystem(place: Place) -> S3FileSystem:
    """pyarrow's client for the bucket's server."""
    from pyarrow.fs import S3FileSystem

    key, secret, session = credentials(place)
    style = _path_style(place)
    return S3FileSystem(
        access_key=key,
        secret_key=secret,
        session_token=session,
        endpoint_override=endpoint(place),
        region=_region(place),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        **({} if style is None else {"force_virtual_addressing": not style}),
    )


@contextmanager
def named(place: Place) -> Iterator[None]:
    """What the S3 client raises inside, in our own words."""
    try:
        with waiting_for(f"the warehouse {place.warehouse}"):
            yield
    except OSError as error:
        if _AWS not in str(error) or isinstance(error, FileNotFoundError):
            raise
        raise _told(place, str(error)) from error


def _told(place: Place, said: str) -> SinkError:
    reason = said.split(_AWS, 1)[1].split(" ", 1)[0]
    where = f"the bucket of {place.warehouse}" + (f" at {endpoint(place)}" if endpoint(place) else "")
    if "NO_SUCH_BUCKET" in reason:
        return _no_bucket(place)
    if found := _TLS.search(said):
        return untrusted(where, found[1].strip()[:300], "SSL_CERT_FILE", "`s3_endpoint`")
    if any(word in said for word in _PASSING):
        return SinkUnavailable(f"{where} does not answer ({reason})", fix="look at the server and at `s3_endpoint`")
    return SinkRefused(
        f"{where} refuses ({reason})",
        means="nothing was written",
        fix=f"compare {KEY} and {SECRET} in the environment with what the server knows, and their rights",
    )


def untrusted(where: str, why: str, variable: str, key: str) -> SinkRefused:
    """The error for a server whose TLS is refused. Pure.

    Args:
        where: what is reached there.
        why: in the client's words.
        variable: by which our own client of that server is told its authorities.
        key: of the sink, where the address is.
    """
    return SinkRefused(
        f"{where} can't be trusted, or has no TLS: {why}",
        means="nothing was written",
        fix="name a PEM file with all authorities that are to be trusted (the system's, and the one that signed the"
        f" certificate) in {variable}, in the environment of every command, and put the latter into the trust store of"
        f" Spark's Java (docs/operations.md); or correct {key} (http or https, and the name that the certificate has)",
    )


def _no_bucket(place: Place) -> SinkRefused:
    where = f" at {endpoint(place)}" if endpoint(place) else ""
    return SinkRefused(
        f"there is no bucket {urlsplit(place.warehouse).netloc}{where}",
        means="a warehouse's bucket is never made by Headwater; nothing was written",
        fix="make it, or correct `warehouse`",
    )


def _path_style(place: Place) -> bool | None:
    """Servers with an address of their own have no host name a bucket; None leaves AWS's own default."""
    if place.s3_path_style is not None:
        return place.s3_path_style
    return True if endpoint(place) else None


def _region(place: Place) -> str | None:
    return place.s3_region or _first(REGIONS) or (ANY_REGION if endpoint(place) else None)


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _present(settings: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if value is not None}
