"""A Django application of two views, with ATOMIC_REQUESTS: saves rows, waits for each, prints their keys as JSON.

``python -m tests.support.django_app '{"info": …, "pipeline": …, "url": …}'``
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from headwater_client import Headwater, at_least_as_fresh, current
from headwater_client.wsgi import ReadYourWrites

KEYS = range(20_600, 20_605)
TOLD: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def save(request: HttpRequest, key: int) -> JsonResponse:
    """Write a row; its token is taken inside the request's transaction, which is committed when this returns."""
    from django.db import connection
    from headwater_client.django import written

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO things (id, a) VALUES (%s, 'django')", [key])
    written(TOLD["pipeline"])
    return JsonResponse({"key": key, "remembered": len(current())})


def find(request: HttpRequest) -> JsonResponse:
    """Wait for what this user has written."""
    answer = at_least_as_fresh(current()).wait(Headwater(TOLD["url"], timeout=20), ["search"])
    return JsonResponse({"state": answer.state, "tokens": len(current())})


urlpatterns = [path("save/<int:key>", save), path("find", find)]


def main() -> None:
    """Ask both views as a browser does, through the middleware."""
    info = TOLD["info"]
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "USER": info["user"],
        "PASSWORD": info["password"],
        "HOST": info["host"],
        "PORT": info["port"],
        "ATOMIC_REQUESTS": True,
    }
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="of this test",
        DATABASES={"default": database},
        USE_TZ=True,
    )
    django.setup()
    application = ReadYourWrites(get_wsgi_application(), secret=b"of this test")
    jar = ""
    for key in KEYS:
        saved, jar = ask(application, f"/save/{key}", jar)
        assert saved["key"] == key and saved["remembered"] >= 1, saved
        found, jar = ask(application, "/find", jar)
        assert found["state"] == "visible" and found["tokens"] >= 1, found
    print(json.dumps(list(KEYS)))


def ask(application: Any, where: str, jar: str) -> tuple[dict[str, Any], str]:
    """One request; what it answers, and the cookie from then on."""
    from wsgiref.util import setup_testing_defaults

    environ: dict[str, Any] = {"PATH_INFO": where, "REQUEST_METHOD": "GET", "HTTP_COOKIE": jar}
    setup_testing_defaults(environ)
    told: dict[str, Any] = {}
    body = b"".join(application(environ, lambda status, headers: told.update(status=status, headers=headers)))
    assert told["status"].startswith("200"), (told, body)
    kept = dict(part.split("=", 1) for part in jar.split("; ") if part)
    for name, value in told["headers"]:
        if name == "Set-Cookie":
            key, _, held = value.partition(";")[0].partition("=")
            kept[key] = held
    jar = "; ".join(f"{key}={value}" for key, value in kept.items() if value)
    return json.loads(body), jar


if __name__ == "__main__":
    main()
