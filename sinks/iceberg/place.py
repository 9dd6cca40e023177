"""Where a warehouse is, as plain values: what all that opens it asks of the pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Place:
    """The part of an ``IcebergSink`` that says where its tables are; equal for the engine and for who looks at them.

    Attributes:
        catalog_uri: address of the catalogue, perhaps with a password.
        warehouse: where the files are, a folder or a URI.
        namespace: of the tables.
        rest_warehouse: what a REST catalogue calls its warehouse, if it has several.
        token: bearer token for a REST catalogue.
        credential: ``client:secret``, for which it gives a token.
        oauth_uri: where, if not at the catalogue itself.
        scope: that is asked for there.
        s3_endpoint: of a server that is not AWS.
        s3_region: of the bucket.
        s3_path_style: the bucket stands in the path, not in the host's name.
    """

    catalog_uri: str = field(repr=False)
    warehouse: str
    namespace: str
    rest_warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    credential: str | None = field(default=None, repr=False)
    oauth_uri: str | None = None
    scope: str | None = None
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_path_style: bool | None = None

    @classmethod
    def of(cls, sink: Any) -> Place:
        """Of anything that has these attributes, or at least the first three; secrets leave their wrappers."""
        if isinstance(sink, cls):
            return sink
        return cls(**{one.name: _plain(getattr(sink, one.name)) for one in fields(cls) if hasattr(sink, one.name)})

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Place:
        """Of plain data from ``sinks.configure``."""
        return cls(**{one.name: config[one.name] for one in fields(cls) if one.name in config})


def _plain(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value
