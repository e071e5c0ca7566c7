"""Being shown under a path of a proxy: requests with that path in front are answered as those without it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """Puts ``root_path`` (``/llm``) in front of a path that lacks it, as ASGI has it: routes match what follows."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == self._root_path:
            path += "/"
        elif not path.startswith(self._root_path + "/"):
            path = self._root_path + path
        scope["root_path"], scope["path"] = self._root_path, path
        await self._app(scope, receive, send)
