"""Every server of the stack, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.errors import StackError
from deploy.local.services.apicurio import Apicurio
from deploy.local.services.base import Service
from deploy.local.services.connect import Connect
from deploy.local.services.elasticsearch import Elasticsearch, Elasticsearch9
from deploy.local.services.kafka import Kafka
from deploy.local.services.opensearch import OpenSearch
from deploy.local.services.postgres import Postgres
from deploy.local.services.redis import RedisCache, RedisStore

SERVICES: dict[str, Service] = {
    service.name: service
    for service in (
        *(Postgres(), Kafka(), Connect(), Elasticsearch(), RedisCache(), RedisStore()),
        *(Apicurio(), Elasticsearch9(), OpenSearch()),
    )
}
# What `up` starts unless it is told otherwise.
DEFAULT = tuple(name for name, service in SERVICES.items() if not service.optional)


def select(only: Sequence[str] | None, *, with_needs: bool) -> list[Service]:
    """The named servers (all if None) in showing order, with what they need if asked; StackError on an unknown name."""
    if only is None:
        return list(SERVICES.values())
    if not only:
        raise StackError("no server is named", fix=f"choose from {', '.join(SERVICES)}")
    wanted: set[str] = set()
    for name in only:
        if name not in SERVICES:
            raise StackError(f"there is no server {name!r}", fix=f"choose from {', '.join(SERVICES)}")
        wanted.add(name)
        if with_needs:
            wanted.update(SERVICES[name].needs)
    return [service for service in SERVICES.values() if service.name in wanted]
