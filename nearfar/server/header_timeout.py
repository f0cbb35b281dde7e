"""Timeout of request headers.

uvicorn itself waits for them without limit.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def build_timeout_protocol(timeout_seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a timeout of each request header.

    Other parts of the server limit the time of bodies and responses.
    """
    said = json.dumps({"error": f"the request did not arrive within {timeout_seconds:g} seconds"}).encode()
    head = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    late = head + b"content-length: %d\r\n\r\n" % len(said) + said
    base: Any = AutoHTTPProtocol

    class TimedProtocol(base):
        timer: asyncio.TimerHandle | None = None
        heard = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.timer = self.loop.call_later(timeout_seconds, self.give_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.heard = True
            # The header is complete and the response is in progress.
            if self.cycle is not None and not self.cycle.response_complete:
                self.calm()
            # The header of another request has begun.
            elif self.timer is None and not self.transport.is_closing():
                self.timer = self.loop.call_later(timeout_seconds, self.give_up)

        def connection_lost(self, exc: Exception | None) -> None:
            self.calm()
            super().connection_lost(exc)

        def give_up(self) -> None:
            """Close the connection.

            Send status 408 only if a request has begun. Browsers open connections that they may never use.
            """
            if self.heard:
                self.transport.write(late)
            self.transport.close()

        def calm(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return TimedProtocol
