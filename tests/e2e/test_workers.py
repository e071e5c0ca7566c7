"""``--workers``: several processes on one port behave like one that does not die with a worker of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from cryptography import x509

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.api.wire import chunks, folded, unfolded
from tests.e2e.conftest import Server, answer_of, connect, eventually, get, request, status_in
from tests.waiting import PATIENCE

WORKERS = 2
USER = [{"role": "user", "content": "Count to ten."}]
GREEDY = {"messages": USER, "temperature": 0, "max_tokens": 12}
CHAT = "/v1/chat/completions"
FAKE_SGLANG = str(Path(__file__).resolve().parents[1] / "fakes" / "sglang_program.py")


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(*flags: str, workers: int = WORKERS, ready: bool = True) -> Server:
        server = Server("--workers", str(workers), "--log-format", "json", *flags)
        started.append(server)
        if ready:
            server.wait_until_ready()
        return server

    yield make
    for server in started:
        server.stop()
    for stream in Stream.open[:]:
        stream.end()


@pytest.fixture
def scripted(start: Callable[..., Server], tmp_path: Path) -> Callable[..., Server]:
    """A server whose replies are scripted: one process fewer, and replies as slow as a test wants them."""

    def make(reply: dict[str, Any], *flags: str, **options: Any) -> Server:
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"replies": [reply], "context_length": 8192}))
        engine = ["--engine", "scripted", "--engine-script", str(script), "--model-path", str(default_model_path())]
        return start(*engine, *flags, **options)

    return make


def children(pid: int) -> dict[int, str]:
    """Living processes whose parent is ``pid``, with their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if parent == pid and command:
            found[int(entry.name)] = command
    return found


def workers_of(server: Server) -> list[int]:
    return sorted(
        pid for pid, command in children(server.process.pid).items() if "paraserve.serving.workers.worker" in command
    )


def engine_of(server: Server) -> int:
    (pid,) = (pid for pid, command in children(server.process.pid).items() if "embedded_process" in command)
    return pid


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def metric(server: Server, name: str, labels: str = "") -> float:
    text = get(f"{server.url}/metrics").text
    return sum(map(float, re.findall(rf"^paraserve_{name}(?:{{.*{labels}.*}})? (\S+)$", text, re.MULTILINE)))


class Stream:
    """A streamed reply that is read in a thread, on a connection of its own. ``worker`` is the process that has it: it
    is found before anything is sent, so that however short the reply is, it is known."""

    open: ClassVar[list[Stream]] = []

    def __init__(self, server: Server) -> None:
        self._socket = connect(server.url)
        self.worker = found(lambda: self._accepted_by(server)) if workers_of(server) else server.process.pid
        self.text = ""
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.open.append(self)

    @classmethod
    def of(cls, server: Server, **fields: Any) -> Stream:
        return cls(server).ask(**fields)

    def ask(self, **fields: Any) -> Stream:
        """Send the request, and wait until the reply begins."""
        self._socket.sendall(request(CHAT, {"messages": USER, "stream": True, **fields}))
        self._thread.start()
        assert self.begun.wait(PATIENCE)
        return self

    def _accepted_by(self, server: Server) -> int | None:
        port, local = self._socket.getsockname()[1], f":{urlsplit(server.url).port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inode = next(row[9] for row in rows if row[1].endswith(local) and row[2].endswith(f":{port:04X}"))
        for pid in workers_of(server):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if descriptor.readlink().name == f"socket:[{inode}]":
                        return pid
        return None

    def _read(self) -> None:
        try:
            while received := self._socket.recv(1 << 16):
                self.text += received.decode()
                if "data: " in self.text:
                    self.begun.set()
        except ConnectionError:
            pass
        self.begun.set()

    def end(self) -> str:
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        if self in self.open:
            self.open.remove(self)
        return self.text

    @property
    def whole(self) -> bool:
        return "data: [DONE]" in self.end()


def found(look: Callable[[], int | None]) -> int:
    seen: list[int] = []
    assert eventually(lambda: bool((it := look()) and not seen.append(it)))
    return seen[0]


def one_for_each_worker(server: Server) -> list[Stream]:
    """Connections that are yet to ask. The kernel deals them out as it likes: for so many there is no bad luck."""
    streams: dict[int, Stream] = {}
    workers = workers_of(server)
    for _ in range(100):
        stream = Stream(server)
        if stream.worker in streams:
            stream.end()
        streams.setdefault(stream.worker, stream)
        if len(streams) == len(workers):
            return list(streams.values())
    raise AssertionError("one worker got no connection of a hundred")


def on_new_connections(server: Server, path: str, count: int = 12, **options: Any) -> list[httpx.Response]:
    """As many workers as there are answer, but for a chance of one in two thousand."""
    return [get(server.url + path, **options) for _ in range(count)]


def replace_one(server: Server) -> None:
    """Kill a worker and wait until there is another in its place."""
    killed = workers_of(server)[0]
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: killed not in workers_of(server) and metric(server, "workers") == WORKERS)


def refuses(server: Server) -> bool:
    try:
        get(f"{server.url}/health")
    except httpx.ConnectError:
        return True
    except httpx.ReadError:  # reset: accepted by a queue that nobody read any more
        return False
    return False


# With the real engine

ROOMY = ("--parallel", "4", "--context-length", "1024")
"""So many slots that no stream waits for another."""


def test_every_worker_serves_the_one_engine_and_the_numbers_add_up(start) -> None:
    server = start("--served-model-name", "small", *ROOMY)
    streams = [stream.ask(max_tokens=60, ignore_eos=True) for stream in one_for_each_worker(server)]
    assert all(stream.whole for stream in streams)
    assert len([pid for pid, command in children(server.process.pid).items() if "embedded_process" in command]) == 1
    assert eventually(lambda: metric(server, "requests_in_flight", CHAT) == 0)
    assert metric(server, "requests_total", 'status="200",stream="true"') == len(streams)
    assert metric(server, "completion_tokens_total") == 60 * len(streams)
    assert len({answer.text for answer in on_new_connections(server, "/v1/models")}) == 1
    assert len({answer.text for answer in on_new_connections(server, "/server_info")}) == 1
    assert {answer.status_code for answer in on_new_connections(server, "/health_generate")} == {200}
    log = server.log.read_text()
    assert log.count('"event":"starting the engine (llama.cpp)"') == log.count('"event":"ready on ') == 1
    assert log.count("puts no tools into the prompt") == 1


def test_replies_are_those_of_a_single_process(start) -> None:
    """What a client has in the end: how a reply is cut into frames, and the last digits of log probabilities, differ
    with what the engine does at the same time."""

    def replies(server: Server) -> list[object]:
        asked = [
            {**GREEDY},
            {**GREEDY, "n": 2, "logprobs": True},
            {**GREEDY, "response_format": {"type": "json_object"}},
            {**GREEDY, "max_tokens": -1},
            {"messages": 3},
        ]
        answers = [httpx.post(server.url + CHAT, json=body, timeout=PATIENCE) for body in asked]
        bodies = [(a.status_code, a.json()) for a in answers]
        whole = [(code, body.get("error") or (told(unfolded(body)), body["usage"])) for code, body in bodies]
        fields = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}
        parts = chunks(httpx.post(server.url + CHAT, json=fields, timeout=PATIENCE).text)
        return [*whole, told(folded(parts)), parts[-1]["usage"]]

    def told(choices: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return {i: {**c, "logprobs": [entry["token"] for entry in c["logprobs"]]} for i, c in choices.items()}

    assert replies(start("--served-model-name", "small")) == replies(start("--served-model-name", "small", workers=1))


def test_a_killed_worker_takes_only_its_own_streams_and_is_started_again(start) -> None:
    server = start(*ROOMY)
    lost, kept = one_for_each_worker(server)
    lost.ask(max_tokens=900, ignore_eos=True)
    kept.ask(max_tokens=100, ignore_eos=True)
    killed = lost.worker
    os.kill(killed, signal.SIGKILL)
    # Its share of new connections is taken by the other at once.
    assert {answer.status_code for answer in on_new_connections(server, "/v1/models")} == {200}
    assert not lost.whole
    assert kept.whole
    assert eventually(
        lambda: (
            len(workers_of(server)) == WORKERS
            and f"(process {workers_of(server)[-1]}) serves" in server.log.read_text()
        )
    )
    assert killed not in workers_of(server)
    assert f"(process {killed}) ended with signal SIGKILL" in server.log.read_text()
    assert eventually(lambda: metric(server, "requests_in_flight", CHAT) == 0)
    assert metric(server, "workers") == WORKERS
    assert {answer.status_code for answer in on_new_connections(server, "/health_generate")} == {200}
    for stream in one_for_each_worker(server):
        assert stream.ask(max_tokens=20, ignore_eos=True).whole


def test_sigterm_lets_the_streams_of_all_workers_end_and_exits_with_zero(start) -> None:
    server = start("--drain-timeout", "60", *ROOMY)
    engine, workers = engine_of(server), workers_of(server)
    streams = [stream.ask(max_tokens=60, ignore_eos=True) for stream in one_for_each_worker(server)]
    server.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: refuses(server))
    assert all(stream.whole for stream in streams)
    assert server.wait_for_exit() == 0
    assert not any(map(alive, [engine, *workers]))
    assert "Traceback" not in server.log.read_text()


def test_a_dead_engine_is_told_by_every_worker_kills_none_and_is_started_again(start) -> None:
    server = start(*ROOMY)
    workers = workers_of(server)
    streams = [stream.ask(max_tokens=900, ignore_eos=True) for stream in one_for_each_worker(server)]
    os.kill(engine_of(server), signal.SIGKILL)
    assert all('"code":"engine_disconnected"' in stream.end() for stream in streams)
    assert eventually(lambda: {answer.status_code for answer in on_new_connections(server, "/health")} == {200})
    assert {answer.status_code for answer in on_new_connections(server, "/health_generate")} == {200}
    assert workers_of(server) == workers
    assert "the engine's process has ended with signal SIGKILL: starting it again" in server.log.read_text()


def test_a_single_process_starts_its_dead_engine_again(start) -> None:
    server = start(workers=1)
    dead = engine_of(server)
    stream = Stream.of(server, max_tokens=900, ignore_eos=True)
    os.kill(dead, signal.SIGKILL)
    assert '"code":"engine_disconnected"' in stream.end()
    assert eventually(lambda: "the engine is back" in server.log.read_text())
    assert get(f"{server.url}/health_generate").status_code == 200
    assert engine_of(server) != dead


@pytest.mark.parametrize("workers", [1, 2])
def test_with_no_engine_restart_the_server_ends_with_its_engine_and_says_why_last(start, workers: int) -> None:
    server = start("--no-engine-restart", workers=workers)
    os.kill(engine_of(server), signal.SIGKILL)
    assert server.wait_for_exit() == 1
    assert "the engine's process has ended with signal SIGKILL" in server.log.read_text().splitlines()[-1]


def test_with_a_killed_supervisor_workers_and_engine_end(start) -> None:
    server = start()
    processes = [*workers_of(server), engine_of(server)]
    stream = Stream.of(server, max_tokens=4000, ignore_eos=True)
    server.process.kill()
    assert eventually(lambda: not any(map(alive, processes)))
    assert not stream.whole


def test_an_engine_that_the_server_starts_is_started_once_and_ends_with_it(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang, played by a module of its name."""
    module = tmp_path / "sglang" / "launch_server.py"
    module.parent.mkdir()
    module.write_text(f"import runpy\nrunpy.run_path({FAKE_SGLANG!r}, run_name='__main__')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = start("--engine", "sglang", "--model-path", str(default_model_path()))
    (engine,) = (pid for pid in children(server.process.pid) if pid not in workers_of(server))
    assert {answer.status_code for answer in on_new_connections(server, "/health_generate")} == {200}
    server.process.kill()
    assert eventually(lambda: not alive(engine))


# With scripted replies

SLOW = {"text": "word " * 40, "delay": 0.05}


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_twice_breaks_replies_off_at_once(scripted, workers: int) -> None:
    server = scripted({**SLOW, "delay": 1.0}, "--drain-timeout", "60", workers=workers)
    streams = [Stream.of(server) for _ in range(4)]
    server.process.send_signal(signal.SIGINT)
    assert eventually(lambda: refuses(server))
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    assert server.wait_for_exit() == 0
    assert not any(stream.whole for stream in streams)


@pytest.mark.parametrize("workers", [1, 2])
def test_replies_that_outlast_the_drain_are_told_so(scripted, workers: int) -> None:
    """An engine that stops in no time leaves as much time for it as any other."""
    server = scripted({**SLOW, "delay": 1.0}, "--drain-timeout", "1", workers=workers)
    streams = [Stream.of(server) for _ in range(6)]
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() == 0
    assert all('"code":"server_stopping"' in stream.end() for stream in streams)


def test_a_worker_that_is_told_to_stop_drains_and_is_replaced_without_a_lost_connection(scripted) -> None:
    server = scripted(SLOW)
    kept, other = (stream.ask() for stream in one_for_each_worker(server))
    stopped = kept.worker
    os.kill(stopped, signal.SIGTERM)

    def replaced() -> bool:
        assert get(f"{server.url}/v1/models").status_code == 200
        return stopped not in workers_of(server) and len(workers_of(server)) == WORKERS

    assert eventually(replaced)
    assert kept.whole
    assert other.whole


def statuses(server: Server, count: int, **headers: str) -> list[int]:
    """Of as many requests that are sent at the same moment."""
    connections = [connect(server.url) for _ in range(count)]
    for connection in connections:
        connection.sendall(request(CHAT, {"messages": USER, "stream": True}, **headers))
    return sorted(status_in(answer_of(connection)) for connection in connections)


def test_limits_are_those_of_the_server_not_of_a_worker(scripted) -> None:
    server = scripted(SLOW, "--max-concurrent-requests", "2", "--max-queued-requests", "3")
    assert statuses(server, 20) == [200] * 5 + [503] * 15
    assert eventually(lambda: statuses(server, 5) == [200] * 5)


def test_places_of_a_killed_worker_are_free_again(scripted) -> None:
    server = scripted({**SLOW, "delay": 0.2}, "--max-concurrent-requests", "2", "--max-queued-requests", "0")
    first, second = Stream.of(server), Stream.of(server)
    os.kill(first.worker, signal.SIGKILL)
    first.end()
    assert eventually(lambda: statuses(server, 3)[0] == 200)
    second.end()
    assert eventually(lambda: statuses(server, 2) == [200, 200])


def test_a_keys_limit_counts_its_requests_on_every_worker(scripted) -> None:
    server = scripted(SLOW, "--api-key", "sesame,thyme", "--max-concurrent-requests-per-key", "2")
    assert statuses(server, 10, authorization="Bearer sesame") == [200] * 2 + [429] * 8
    assert statuses(server, 2, authorization="Bearer thyme") == [200] * 2


def test_secrets_are_neither_on_a_workers_command_line_nor_in_its_environment(scripted, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("api-key: very-secret-key\nengine-api-key: other-secret-key\n")
    server = scripted(SLOW, "--config", str(config))
    for pid in workers_of(server):
        for place in ("cmdline", "environ"):
            assert b"secret-key" not in Path(f"/proc/{pid}/{place}").read_bytes()
    assert {answer.status_code for answer in on_new_connections(server, "/v1/models")} == {401}
    key = {"authorization": "Bearer very-secret-key"}
    assert {answer.status_code for answer in on_new_connections(server, "/v1/models", headers=key)} == {200}


def test_what_one_worker_stored_or_signed_every_other_knows(scripted, tmp_path: Path) -> None:
    """And what was told as stored outlives the worker that said so."""
    thinks = {"text": "<think>Hm.</think>Yes."}
    server = scripted(thinks, "--response-store", str(tmp_path / "r.db"), "--reasoning-parser", "qwen3")
    url = f"{server.url}/v1/responses"
    first = {"input": "hi", "include": ["reasoning.encrypted_content"]}
    made = httpx.post(url, json=first, timeout=PATIENCE).json()
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": made["output"][0]["encrypted_content"]}
    input = [USER[0], sealed, *made["output"][1:], USER[0]]
    for _ in range(6 * WORKERS):  # each by a connection of its own: to any of the workers
        assert get(f"{url}/{made['id']}").json() == made
        more = {"input": "more", "previous_response_id": made["id"]}
        assert httpx.post(url, json=more, timeout=PATIENCE).status_code == 200
        read = httpx.post(url, json={"input": input, "store": False}, timeout=PATIENCE)
        assert "sealed_reasoning_dropped" not in read.headers.get("x-paraserve-normalizations", "")
    for worker in workers_of(server):
        os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: is_found(f"{url}/{made['id']}"))


def is_found(url: str) -> bool:
    try:
        return get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_worker_that_cannot_start_is_given_up_and_the_others_go_on(scripted, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    server = scripted(SLOW, "--api-key-file", str(keys))
    keys.unlink()
    (killed, other) = workers_of(server)
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: "the others go on without it" in server.log.read_text())
    assert workers_of(server) == [other]
    key = {"authorization": "Bearer sesame"}
    assert {answer.status_code for answer in on_new_connections(server, "/v1/models", headers=key)} == {200}
    os.kill(other, signal.SIGKILL)
    assert server.wait_for_exit() == 1
    assert "no worker is left" in server.log.read_text()


def certificate(place: Path, authority: trustme.CA) -> int:
    """Write one; returns its serial number."""
    issued = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    place.write_bytes(issued.private_key_pem.bytes() + chain)
    return x509.load_pem_x509_certificate(chain).serial_number


def serials(server: Server, count: int = 12) -> set[int]:
    """Of the certificates that new connections get."""
    where = (urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0)
    return {
        x509.load_pem_x509_certificate(ssl.get_server_certificate(where).encode()).serial_number for _ in range(count)
    }


def test_every_worker_takes_up_new_certificates_and_withdrawn_keys(scripted, tmp_path: Path) -> None:
    authority = trustme.CA()
    pem, keys = tmp_path / "server.pem", tmp_path / "keys"
    first = certificate(pem, authority)
    keys.write_text("sesame\nthyme\n")
    server = scripted(SLOW, "--ssl-certfile", str(pem), "--api-key-file", str(keys))
    assert serials(server) == {first}
    second = certificate(pem, authority)
    keys.write_text("thyme\n")
    os.kill(workers_of(server)[0], signal.SIGKILL)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def statuses_of(key: str) -> set[int]:
        headers = {"authorization": f"Bearer {key}"}
        return {a.status_code for a in on_new_connections(server, "/v1/models", headers=headers, verify=trusting)}

    assert eventually(lambda: statuses_of("sesame") == {401})
    assert statuses_of("thyme") == {200}
    assert eventually(lambda: serials(server) == {second})


@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.0])
def test_a_start_that_is_stopped_leaves_nothing_behind(start, seconds: float) -> None:
    server = start(ready=False)
    time.sleep(seconds)
    below = list(children(server.process.pid))
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
    assert eventually(lambda: not any(map(alive, below)))
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model-path", "no/such/file.gguf"), ["no/such/file.gguf"]),
        (("--tool-call-parser", "nonsense"), ["nonsense", "hermes"]),
        (("--api-key-file", "no/such/keys"), ["no/such/keys"]),
        (("--ssl-certfile", "no/such/pem"), ["no/such/pem"]),
    ],
)
def test_a_failed_start_is_one_line_and_leaves_nothing_behind(start, flags: tuple[str, ...], words: list[str]) -> None:
    server = start("--log-format", "text", *flags, ready=False)
    assert server.wait_for_exit() == 1
    log = server.log.read_text()
    last = log.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert all(word in last for word in words), last
    assert log.count("error: ") == 1
    assert "Traceback" not in log


def test_a_port_that_others_share_is_taken_all_the_same(start) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = start("--port", str(taken.getsockname()[1]), ready=False)
        assert server.wait_for_exit() == 1
    assert "cannot listen on" in server.log.read_text()


def test_the_metrics_directory_is_gone_after_the_end(scripted) -> None:
    server = scripted(SLOW)
    environment = Path(f"/proc/{workers_of(server)[0]}/environ").read_bytes().split(b"\0")
    (directory,) = (Path(line.partition(b"=")[2].decode()) for line in environment if b"MULTIPROC" in line)
    assert directory.stat().st_mode & 0o777 == 0o700
    server.stop()
    assert not directory.exists()


def test_counts_outlive_their_workers_and_restarts_leave_no_files_behind(scripted) -> None:
    server = scripted({"text": "short"})
    environment = Path(f"/proc/{workers_of(server)[0]}/environ").read_bytes().split(b"\0")
    (directory,) = (Path(line.partition(b"=")[2].decode()) for line in environment if b"MULTIPROC" in line)
    files = set(directory.iterdir())
    counted = partial(metric, server, "requests_total", 'status="200",stream="true"')
    for sent in (12, 24, 36):
        assert statuses(server, 12) == [200] * 12
        assert eventually(lambda: counted() >= sent)  # noqa: B023 - it is awaited here
        replace_one(server)
    assert counted() == 36
    assert eventually(lambda: set(directory.iterdir()) == files)


def test_tokens_of_a_reply_that_runs_are_counted_whoever_answers_the_scrape(scripted) -> None:
    server = scripted({"text": "word " * 1000, "delay": 0.05})
    for stream in one_for_each_worker(server):
        stream.ask()
    assert eventually(lambda: metric(server, "completion_tokens_total") >= 20 * WORKERS)
    assert metric(server, "requests_in_flight", CHAT) == WORKERS
    server.process.send_signal(signal.SIGKILL)


def test_workers_of_one_is_one_process(start) -> None:
    server = start(workers=1)
    assert workers_of(server) == []
