"""Starts SGLang's schedulers without its front end, for sockets in a directory: ``launcher.py DIRECTORY FLAG…``.

Run by SGLang's Python as a file, and imports nothing of ours. Writes ``ready.json`` when the model is loaded: what the
schedulers tell, and how the fields of their messages lie. Ends when one of them has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

os.environ["SGLANG_USE_PICKLE_IPC"] = "0"  # else messages are pickled; read when the messages' module is imported

SOCKETS = {
    "scheduler_input_ipc_name": "input",
    "detokenizer_ipc_name": "tokens",
    "tokenizer_ipc_name": "answers",
    "rpc_ipc_name": "rpc",
}
"""The fields of SGLang's `PortArgs`, and the sockets that are bound by whoever speaks to the schedulers."""
END_SECONDS = 10.0
"""For the memory of a rank that is killed to be given back."""
TOLD = ("context_length", "max_req_input_len", "max_total_num_tokens", "grammar_backend", "reasoning_parser",
        "enable_deterministic_inference")  # fmt: skip


def main() -> None:
    directory, flags = Path(sys.argv[1]), sys.argv[2:]
    sglang, front_end, io_struct, sampling, server, resolved = (
        import_module(name)
        for name in (
            "sglang",
            "sglang.srt.entrypoints.engine",
            "sglang.srt.managers.io_struct",
            "sglang.srt.sampling.sampling_params",
            "sglang.srt.server_args",
            "sglang.srt.runtime_context",
        )
    )
    arguments = server.prepare_server_args(flags)
    front_end.configure_logger(arguments)
    arguments.resolve_once()
    front_end._set_envs_and_config(arguments)
    front_end.load_plugins()
    arguments.check_server_args()
    front_end.resolve_auto_parsers(arguments)
    front_end.publish(arguments, role="tokenizer")
    ports = server.PortArgs.init_new(arguments)
    for name, socket in SOCKETS.items():
        setattr(ports, name, f"ipc://{directory}/{socket}")
    started, ranks = front_end.Engine._launch_scheduler_processes(arguments, ports, front_end.run_scheduler_process)
    signal.signal(signal.SIGTERM, lambda *_: end(ranks))
    signal.signal(signal.SIGQUIT, lambda *_: end(ranks))  # a rank's way of saying that it has failed
    started.wait_for_ready()
    info = started.scheduler_infos[0]
    structs = (
        io_struct.TokenizedGenerateReqInput, io_struct.AbortReq, io_struct.BatchTokenIDOutput, sampling.SamplingParams
    )  # fmt: skip
    told = {name: info.get(name, getattr(arguments, name, None)) for name in TOLD}
    told |= {
        "page_size": resolved.get_schedule().page_size,
        "version": sglang.__version__,
        "layout": {struct.__name__: fields(struct) for struct in structs},
    }
    written = directory / "ready.part"
    written.write_text(json.dumps(told))
    written.rename(directory / "ready.json")
    wait([rank.sentinel for rank in ranks])
    end(ranks)


def fields(struct: Any) -> list[list[Any]]:
    """As ``engines/wire/layout.py`` reads them."""
    import msgspec

    rows = []
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        plain = default is None or isinstance(default, bool | int | float | str | list | dict)
        rows.append([field.name] if default is msgspec.NODEFAULT else [field.name, default if plain else None])
    return rows


def end(ranks: Any) -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.join(END_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
