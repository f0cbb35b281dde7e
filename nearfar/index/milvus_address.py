"""Addresses of Milvus stores.

photos.db                          a file (or folder) of milvus-lite
http://host:19530                  a server; https:// and USER:PASSWORD@ are also accepted
http://host:19530/photos           a collection on this server other than "nearfar"
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from nearfar.core.errors import UsageError

DEFAULT_COLLECTION = "nearfar"


@dataclass(frozen=True)
class MilvusStore:
    """Address of a Milvus collection."""

    uri: str
    collection: str = DEFAULT_COLLECTION
    token: str = ""
    """User name and password as USER:PASSWORD."""

    @property
    def is_file(self) -> bool:
        """Return True for a file of milvus-lite."""
        return "://" not in self.uri


def is_milvus_store(name: str | os.PathLike) -> bool:
    """Return True if a name is the address of a Milvus store."""
    text = os.fspath(name)
    return text.startswith(("http://", "https://")) or text.endswith(".db")


def parse_milvus_store(name: str) -> MilvusStore:
    """Parse the address of a Milvus store."""
    if "://" not in name:
        return MilvusStore(name)
    parts = urlsplit(name)
    collection = parts.path.strip("/") or DEFAULT_COLLECTION
    if not parts.hostname:
        raise UsageError(f"--store {name}: give a server as http://host:19530")
    if not re.fullmatch(r"[A-Za-z_]\w{0,200}", collection, re.ASCII):
        raise UsageError(f"--store {name}: {collection!r} is not a valid collection name (letters, digits and _)")
    address, _, host = parts.netloc.rpartition("@")
    return MilvusStore(f"{parts.scheme}://{host}", collection, address)
