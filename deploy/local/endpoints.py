"""Where the stack's servers are, as values and as environment variables for pipeline files."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local import artifacts
from deploy.local.services.postgres import SUPERUSER, superuser_password
from deploy.local.services.registry import SERVICES
from deploy.local.site import HOST, Site


@dataclass(frozen=True)
class Endpoints:
    """Addresses of every server, and files of Spark's. The password never shows in a repr."""

    postgres_host: str
    postgres_port: int
    postgres_superuser: str
    postgres_password: str = field(repr=False)
    kafka: str
    connect_url: str
    elasticsearch_url: str
    redis_cache_url: str
    redis_store_url: str
    registry_url: str
    spark_archive: Path = Path()
    opensearch_url: str = ""

    @classmethod
    def of(cls, site: Site) -> Endpoints:
        """The endpoints of one stack, running or not; makes the Postgres password on first use.

        Raises:
            StackError: the password is lost.
        """
        return cls(
            postgres_host=HOST,
            postgres_port=site.port("postgres"),
            postgres_superuser=SUPERUSER,
            postgres_password=superuser_password(site),
            kafka=f"{HOST}:{site.port('kafka')}",
            connect_url=f"http://{HOST}:{site.port('connect')}",
            elasticsearch_url=f"http://{HOST}:{site.port('elasticsearch')}",
            redis_cache_url=f"redis://{HOST}:{site.port('redis-cache')}/0",
            redis_store_url=f"redis://{HOST}:{site.port('redis-store')}/0",
            registry_url=SERVICES["registry"].address(site),
            spark_archive=site.spark_archive,
            opensearch_url=SERVICES["opensearch"].address(site),
        )

    def environment(self) -> dict[str, str]:
        """As the variables that pipeline files name. Holds the superuser's password: print it only when asked."""
        return {
            "HEADWATER_POSTGRES_HOST": self.postgres_host,
            "HEADWATER_POSTGRES_PORT": str(self.postgres_port),
            "HEADWATER_POSTGRES_SUPERUSER": self.postgres_superuser,
            "HEADWATER_POSTGRES_PASSWORD": self.postgres_password,
            "HEADWATER_KAFKA": self.kafka,
            "HEADWATER_CONNECT": self.connect_url,
            "HEADWATER_ELASTICSEARCH": self.elasticsearch_url,
            "HEADWATER_REDIS_CACHE": self.redis_cache_url,
            "HEADWATER_REDIS_STORE": self.redis_store_url,
            "HEADWATER_REGISTRY": self.registry_url,
            "HEADWATER_OPENSEARCH": self.opensearch_url,
            "HEADWATER_SPARK_JARS": os.pathsep.join(str(folder) for folder in artifacts.spark_folders()),
            "HEADWATER_SPARK_ARCHIVE": str(self.spark_archive),
        }

    def exports(self) -> str:
        """``export NAME=value`` lines for a shell."""
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in self.environment().items())
