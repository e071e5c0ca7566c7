"""The line between a supervisor and its worker, when one end of it is gone."""

from __future__ import annotations

import asyncio
import socket

from paraserve.serving.workers.channel import Channel, Step


async def test_what_is_said_to_an_end_that_did_not_read_on_is_nobodys_failure() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    channel.send(Step("unread"))
    await channel.flush()
    theirs.send(b'{"type":"released"}')  # so that both directions hold something when it goes
    theirs.close()
    lines = [line async for line in channel.lines()]
    channel.send(Step("nobody is there"))
    await channel.flush()
    channel.close()
    assert lines == []
    await asyncio.sleep(0)
