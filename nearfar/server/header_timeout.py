"""A connection that begins a request and does not go on is closed; uvicorn by itself waits for the head of a request for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def build_timeout_protocol(timeout_seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, with so many seconds for each head. How long bodies and answers may take is asked elsewhere."""
    said = json.dumps({"error": f"the request did not arrive within {timeout_seconds:g} seconds"}).encode()
    head = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    late = head + b"content-length: %d\r\n\r\n" % len(said) + said
    base: Any = AutoHTTPProtocol

    class Punctual(base):
        timer: asyncio.TimerHandle | None = None
        heard = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.timer = self.loop.call_later(timeout_seconds, self.give_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.heard = True
            if self.cycle is not None and not self.cycle.response_complete:  # a head has come, and is being answered
                self.calm()
            elif self.timer is None and not self.transport.is_closing():  # a further head has begun
                self.timer = self.loop.call_later(timeout_seconds, self.give_up)

        def connection_lost(self, exc: Exception | None) -> None:
            self.calm()
            super().connection_lost(exc)

        def give_up(self) -> None:
            """A browser opens connections that it may never use: those are closed without a word."""
            if self.heard:
                self.transport.write(late)
            self.transport.close()

        def calm(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return Punctual
