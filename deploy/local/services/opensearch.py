"""OpenSearch 3, the minimal distribution, one node. Only started when it is asked for."""

from __future__ import annotations

import re
from pathlib import Path

from cdc.errors import StackError
from deploy.local.process import Launch
from deploy.local.services.elasticsearch import Elasticsearch
from deploy.local.site import Site


class OpenSearch(Elasticsearch):
    """The search index of those who left Elasticsearch, from which it was forked."""

    name = "opensearch"
    port_names = ("opensearch", "opensearch-transport")
    optional = True
    oldest_java = 21
    product = "opensearch"
    own_settings = {}  # noqa: RUF012 (of the class above)

    def more_options(self, units: dict[str, Path]) -> list[str]:
        """It will not start without its own agent, which stands for Java's old security manager.

        Raises:
            StackError: its path holds a blank, at which OpenSearch's start script cuts Java's options.
        """
        agent = units[self.name] / "agent" / "opensearch-agent.jar"
        if re.search(r"\s", str(agent)):
            raise StackError(
                f"OpenSearch can't start from {str(agent.parent)!r}: its start script cuts Java's options at blanks",
                fix="set HEADWATER_CACHE to a folder whose path has none",
            )
        return [
            f"-javaagent:{agent}",
            "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED",
        ]

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """Its own start script, in whose place the server runs.

        Raises:
            StackError: Java is older than what it was compiled for.
        """
        self.check_java(site)
        root = site.shared_data(self.name)
        env = {
            "OPENSEARCH_JAVA_HOME": str(site.jdk.home),
            "OPENSEARCH_PATH_CONF": str(root / "config"),
            "OPENSEARCH_TMPDIR": str(root / "tmp"),
        }
        program = units[self.name] / "bin" / "opensearch"
        return Launch([str(program)], cwd=root, log=site.log(self.name), env=env, account=site.account)
