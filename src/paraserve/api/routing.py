"""Which endpoint a request is for: the table of `api/endpoints.py`, looked up by path and method.

Never knows what an endpoint does. Invariant: a request's endpoint is found once, in front of every layer, so that what
is counted and logged is what answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Scope

Handler = Callable[[Request], Awaitable[ASGIApp]]


class Row(Protocol):
    """What is read of the table."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def handler(self) -> Handler: ...


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the table, and who answers there by method."""

    path: str
    handlers: dict[str, Handler] = field(default_factory=dict)


NOWHERE = Route("other")


class Router:
    """Args:
    root_path: what a path may have in front of the table's.
    """

    def __init__(self, rows: Iterable[Row], root_path: str = "") -> None:
        routes: dict[str, Route] = {}
        for row in rows:
            handlers = routes.setdefault(row.path, Route(row.path)).handlers
            handlers[row.method] = row.handler
            if row.method == "GET":
                handlers["HEAD"] = row.handler
        self._root_path = root_path
        self._plain = {path: route for path, route in routes.items() if "{" not in path}
        self._patterns = [(compile_path(path)[0], route) for path, route in routes.items() if "{" in path]

    def find(self, scope: Scope) -> tuple[Route, Mapping[str, str]]:
        """The route, and what its path's parameters are; `NOWHERE` where there is none. One that takes the method is
        preferred."""
        path: str = scope["path"]
        if self._root_path and (path == self._root_path or path.startswith(self._root_path + "/")):
            path = path[len(self._root_path) :] or "/"
        method = scope["method"]
        found, parameters = self._plain.get(path, NOWHERE), dict[str, str]()
        if method in found.handlers:
            return found, parameters
        for pattern, route in self._patterns:
            if match := pattern.match(path):
                if method in route.handlers:
                    return route, match.groupdict()
                if found is NOWHERE:
                    found, parameters = route, match.groupdict()
        return found, parameters
