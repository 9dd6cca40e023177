"""With Avro: does the schema registry answer, and has the worker the converter?"""

from __future__ import annotations

from collections.abc import Iterator

import requests

from cdc import redirects, tls
from connectors.debezium import AVRO_CONVERTER
from connectors.preflight.model import Check, Finding, Level, Site

PATIENCE_SECONDS = 5.0


def run(site: Site) -> Iterator[Finding]:
    """Confluent's API answers from here; that the worker can use it is only seen when it writes."""
    registry = site.pipeline.source.registry
    if registry is None:
        return
    settings = registry.client()
    user = (settings["user"], settings["password"]) if "user" in settings else None
    try:
        answer = requests.get(
            f"{settings['url']}/schemas/types",
            auth=user,
            timeout=PATIENCE_SECONDS,
            verify=settings.get("ca_certs", True),
            allow_redirects=False,  # as who reads the records does
        )
        if 300 <= answer.status_code < 400:
            where = redirects.led_to(answer.url, answer.headers.get("location", ""))
            message = f"the schema registry does not answer there: it leads to {where} ({answer.status_code})"
            yield Finding(Level.ERROR, registry.url, message, redirects.remedy("source.registry.url"))
            return
        listed = answer.json() if answer.ok else []
    except (OSError, ValueError) as error:  # requests' own are OSErrors, and so is that ca_certs name no file
        why = tls.refused(error)
        message = f"the schema registry does not answer as Confluent's API: {why or type(error).__name__}"
        fix = "start it (`headwater up --with registry` for the local one), or correct source.registry.url"
        if why or not isinstance(error, requests.RequestException | ValueError):
            fix = tls.remedy("source.registry")
        yield Finding(Level.ERROR, registry.url, message, fix)
        return
    if "AVRO" not in listed:
        message = f"the schema registry answers {answer.status_code} and offers no Avro"
        yield Finding(Level.ERROR, registry.url, message, "correct source.registry (url, user, password)")
    if site.pipeline.source.format != "avro" or "connect" in site.failed:
        return
    converter = str(site.pipeline.connect.options.get("value.converter", AVRO_CONVERTER))
    if converter not in site.connect.plugins(connectors_only=False):
        message = f"this worker does not have the converter {converter}"
        fix = "put headwater-avro.jar and Apicurio's jars into the worker's plugin.path (docs/connectors.md#avro)"
        yield Finding(Level.ERROR, site.pipeline.connect.url, message, fix)


CHECK = Check("registry", "with Avro: the schema registry answers, and the worker has the converter", run)
