"""Who may ask what: loopback without a token, everybody else with one; no page of another site asks in a user's name.

A browser sends what a foreign page tells it to, with its user's network behind it. Such a request names a foreign host
(DNS rebinding) or a foreign origin, or is of the few kinds that need no leave and name none: an image, a script, a
form. All three are refused here; a link that somebody follows to a page of ours is not. A form of our own page must
name our origin, and its handler looks whether it is of the session (``console/http/pages/asking.py``).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cdc.errors import ConfigError
from console.http.sessions import LIFE_SECONDS, Session, begun, cookie_name, resumed

Role = Literal["read", "operate", "stream"]
# Of these the environment may hold one each; `operate` may do what the others may, `stream` may subscribe and no more.
VARIABLES: Mapping[str, Role] = {
    "HEADWATER_READ_TOKEN": "read",
    "HEADWATER_OPERATE_TOKEN": "operate",
    "HEADWATER_STREAM_TOKEN": "stream",
}
SHORTEST = 16
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Waiting changes nothing, whatever the method; and who was let in may leave.
_READERS_POST = frozenset({"/v1/wait", "/logout"})
_STREAMS = ("/v1/stream/", "/v1/matches/")
# What somebody needs who has yet to say who they are.
_OPEN = ("/healthz", "/login", "/static/")
# Where a browser says that a request comes from which is not our page and not its user's own hand. What is no browser
# says nothing of it.
_ELSEWHERE = frozenset({"cross-site", "same-site"})
FORM = "application/x-www-form-urlencoded"
# What a Host header may be: a name or an address, and a port. Anything else may stand for another address than the one
# that is answered, where somebody puts both together.
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{0,5})?", re.ASCII)
# No request of ours is nearly as long; who sends more would have the server keep all of it.
MOST_BYTES = 2**20
# No script but ours, no style but ours, in no frame. A form says where it comes from (`same-origin`): without it a
# browser sends `Origin: null`.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        tokens: token -> role; nobody needs one if there is none.
        hosts: names under which the server may be called, besides loopback's.
        secret: signs sessions where there are no tokens; of this process.
    """

    tokens: Mapping[str, Role]
    hosts: frozenset[str] = frozenset()
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def bearers(self) -> Mapping[str, Role]:
        """What a session may stand for: pages show nothing to who may only subscribe."""
        if not self.tokens:
            return {self.secret: "operate"}
        return {token: role for token, role in self.tokens.items() if role != "stream"}

    def role(self, header: str | None) -> Role | None:
        """What the bearer of an ``Authorization`` header may do; None for nothing."""
        if not self.tokens:
            return "operate"
        kind, _, given = (header or "").partition(" ")
        return self.role_of(given.strip()) if kind.lower() == "bearer" else None

    def role_of(self, given: str) -> Role | None:
        """What a token lets its bearer do; None for one that is none."""
        found: Role | None = None
        for token, role in self.tokens.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(token.encode(), given.encode()):
                found = role
        return found


def access(environment: Mapping[str, str], host: str, names: tuple[str, ...] = ()) -> Access:
    """From the environment, for a server that listens at ``host``.

    Args:
        environment: may hold the tokens.
        host: the address.
        names: under which else it may be called.

    Raises:
        ConfigError: another address than loopback without a token, or a token that is too short (terminal).
    """
    tokens: dict[str, Role] = {}
    for variable, role in VARIABLES.items():
        token = environment.get(variable, "")
        if token and len(token) < SHORTEST:
            raise ConfigError(f"{variable} has fewer than {SHORTEST} characters", fix="take a longer one, by chance")
        if token in tokens:
            same = " and ".join(name for name in VARIABLES if environment.get(name) == token)
            raise ConfigError(f"{same} are the same", fix="who may do less could do more: take another")
        if token:
            tokens[token] = role
    if not tokens and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: whoever reaches this machine could see and change everything",
            fix=f"set {' or '.join(VARIABLES)} to a secret, and hand it to who may; or stay on 127.0.0.1",
        )
    return Access(tokens, frozenset({host.lower(), *(name.lower() for name in names)}))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that lets through what ``Access`` allows.

    Args:
        app: what is guarded.
        access: who may ask.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        session = self._session(request)
        refusal = self._refuse(request, session)
        fresh = None
        if refusal is None and session is None and not self.access.tokens and _is_page(request):
            session = fresh = begun(self.access.secret)
        request.state.session = session
        request.state.role = self._role(request, session)
        answer = self.app if refusal is None else refusal
        read, answered = 0, False

        async def received() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read <= MOST_BYTES:
                return message
            if answered:  # a stream, which reads on only to learn when its reader has gone
                return {"type": "http.disconnect"}
            raise HTTPException(413, f"a request has at most {MOST_BYTES:,} bytes")

        async def sent(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if fresh is not None:
                    headers.append("Set-Cookie", set_cookie(request, fresh))
            await send(message)

        await answer(scope, received, sent)

    def _session(self, request: Request) -> Session | None:
        cookie = request.cookies.get(cookie_name(request.headers.get("host", "")))
        return None if cookie is None else resumed(cookie, self.access.bearers)

    def _role(self, request: Request, session: Session | None) -> Role | None:
        role = self.access.role(request.headers.get("authorization"))
        return role or (None if session is None else self.access.bearers.get(session.token))

    def _refuse(self, request: Request, session: Session | None) -> Response | None:
        path = request.scope["path"]
        if path == "/healthz":
            return None  # a probe calls a machine by its address
        host = _name(request.headers.get("host", ""))
        if host is None:
            return _refused(400, "Host is no name with an optional port", "send Host: NAME or NAME:PORT")
        if host not in _LOOPBACK and host not in self.access.hosts:
            return _refused(421, f"this server is not called {host}", "start it with --name, if it is")
        asks = request.method in ("GET", "HEAD")
        if asks and path.startswith(_OPEN):
            return None
        return _foreign(request, asks=asks) or self._lacking(request, session, asks=asks)

    def _lacking(self, request: Request, session: Session | None, *, asks: bool) -> Response | None:
        path = request.scope["path"]  # request.url is put together with the Host header
        if path == "/login":
            return None
        # A cookie goes with whatever a browser sends: it may ask, and send forms of our pages, which bear their proof.
        role = self._role(request, session if asks or not path.startswith("/v1/") else None)
        if role is None and asks and _is_page(request):
            return _to_login(request)
        if role is None:
            return _refused(401, "a token is needed", "send Authorization: Bearer …")
        if role == "stream" and not path.startswith(_STREAMS):
            return _refused(403, "this token may only subscribe", "use the one of HEADWATER_READ_TOKEN")
        if role == "read" and not asks and path not in _READERS_POST:
            return _refused(403, "this token may only read", "use the one of HEADWATER_OPERATE_TOKEN")
        return None


def _to_login(request: Request) -> Response:
    """Leads to the form for a token, and from there back to the page."""
    query = request.scope["query_string"].decode("latin-1")
    page = whole_page(f"{quote(request.scope['path'])}?{query}")
    there = f"/login?next={quote(page)}"
    if request.headers.get("hx-request") != "true":
        return RedirectResponse(there, 303)
    # A page's script would follow a redirect unseen, and put the form in the place of what it has asked for.
    answer = _refused(401, "a token is needed", "sign in again")
    answer.headers["HX-Redirect"] = there
    return answer


def _is_page(request: Request) -> bool:
    path = request.scope["path"]
    return not path.startswith(("/v1/", "/openapi.json", "/metrics", *_OPEN)) or path == "/login"


def whole_page(address: str) -> str:
    """The page that an address is of, where it may be of the ``part`` that a page's script asks for by itself."""
    path, _, query = address.partition("?")
    kept = [one for one in query.split("&") if one and unquote(one.partition("=")[0]) != "part"]
    return path + ("?" + "&".join(kept) if kept else "")


def set_cookie(request: Request, session: Session | None) -> str:
    """The header that gives a browser its session, or takes it away."""
    name = cookie_name(request.headers.get("host", ""))
    value, life = ("", 0) if session is None else (session.text, LIFE_SECONDS)
    safe = "; Secure" if request.url.scheme == "https" else ""
    return f"{name}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{safe}"


def _foreign(request: Request, *, asks: bool) -> JSONResponse | None:
    """A request that another site's page may have sent."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        return _refused(403, f"a page of {origin} may not ask", "ask from the server's own page, or without a browser")
    if led_here(request) and not (asks and _follows(request)):
        return _refused(403, "a page of another site may not ask", "type the address, or ask without a browser")
    kind = request.headers.get("content-type", "")
    if asks or kind.startswith("application/json"):
        return None
    if not kind.startswith(FORM) or request.scope["path"].startswith("/v1/"):
        return _refused(415, "a request that does something is JSON", "send Content-Type: application/json")
    if origin is None:
        return _refused(403, "a form must say of which page it is", "send it from the server's own page")
    return None


def led_here(request: Request) -> bool:
    """Whether a page of another site makes a browser ask, be it by a link: what it says is not its user's wish."""
    return request.headers.get("sec-fetch-site") in _ELSEWHERE


def _follows(request: Request) -> bool:
    """Whether somebody follows a link to one of our pages: he sees what it shows, and who has sent him does not.

    Not to a ``part`` of one, which is work that our own page asks for.
    """
    kind = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return kind == ("navigate", "document") and _is_page(request) and "part" not in request.query_params


def _name(host: str) -> str | None:
    """A Host header without its port; None for one that is none."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1].strip("[]").lower()


def _refused(status: int, what: str, fix: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = {"error": {"code": "refused", "what": what, "means": "", "fix": fix, "transient": False}}
    return JSONResponse(body, status, headers)
