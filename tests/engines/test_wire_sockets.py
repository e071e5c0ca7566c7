"""ZeroMQ sockets in the event loop's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from paraserve.engines.wire.sockets import MOST_A_TURN, Sockets
from tests.waiting import until


@pytest.fixture
def peer() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.PUSH) as made:
        made.linger = 0
        yield made


async def test_all_of_a_burst_is_read_in_order_and_a_fault_of_ours_loses_nothing_else(
    tmp_path: Path, peer: zmq.Socket[bytes]
) -> None:
    faults, read = list[str](), list[int]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(str(context["exception"])))

    def take(frames: list[bytes]) -> None:
        number = int(frames[0])
        if number == 3:
            raise RuntimeError("of ours")
        read.append(number)

    sockets = Sockets()
    sockets.bind(zmq.PULL, f"ipc://{tmp_path}/in", take)
    peer.connect(f"ipc://{tmp_path}/in")
    count = 3 * MOST_A_TURN
    for number in range(count):
        peer.send(str(number).encode())
    await until(lambda: len(read) == count - 1)
    assert read == [number for number in range(count) if number != 3]
    assert faults == ["of ours"]
    sockets.close()


async def test_a_peer_that_waits_for_the_address_is_seen_to_come_and_to_go(
    tmp_path: Path, peer: zmq.Socket[bytes]
) -> None:
    peer.connect(f"ipc://{tmp_path}/in")
    seen: list[str] = []
    sockets = Sockets()
    told = {"came": lambda: seen.append("came"), "went": lambda: seen.append("went")}
    sockets.bind(zmq.PULL, f"ipc://{tmp_path}/in", lambda _: None, **told)
    await until(lambda: seen)
    peer.close()
    await until(lambda: len(seen) == 2)
    assert seen == ["came", "went"]
    sockets.close()


async def test_nothing_is_bound_where_others_could_come(tmp_path: Path) -> None:
    sockets = Sockets()
    for address in ("tcp://0.0.0.0:*", "tcp://*:5555", "ipc://relative"):
        with pytest.raises(AssertionError):
            sockets.bind(zmq.PULL, address, lambda _: None)
    sockets.close()
