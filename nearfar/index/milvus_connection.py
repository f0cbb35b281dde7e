"""Connection to Milvus: one-line errors, collections and the stored state of an index."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from nearfar.core.errors import MissingExtra, NearfarError
from nearfar.index.milvus_address import MilvusStore, parse_milvus_store


def import_pymilvus() -> Any:
    """Import pymilvus. Raises `MissingExtra` if it is not installed."""
    try:
        import pymilvus
    except ImportError as e:
        raise MissingExtra("pymilvus", "milvus", "a Milvus store") from e
    return pymilvus


def connect_to_milvus(name: str) -> tuple[MilvusStore, Any]:
    """Connect to a Milvus store. Returns its address and a client."""
    pymilvus = import_pymilvus()
    # `report_milvus_errors` reports errors of pymilvus in one line.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    store = parse_milvus_store(name)
    with report_milvus_errors(name):
        return store, pymilvus.MilvusClient(store.uri, token=store.token, timeout=20)


@contextlib.contextmanager
def report_milvus_errors(name: str) -> Iterator[None]:
    """Convert Milvus errors to `NearfarError` with one line."""
    try:
        yield
    except import_pymilvus().MilvusException as e:
        raise NearfarError(f"the Milvus store {name}: {str(e.message).splitlines()[0]}") from e


def create_collection(
    client: Any, name: str, dim: int, text_fields: Sequence[str], milvus_index_type: str, index_settings: dict[str, int], metric_type: str
) -> None:
    """Create a searchable collection of ids, vectors and text fields.

    Args:
        client: Client of pymilvus.
        name: Name of the collection.
        dim: Width of the vectors.
        text_fields: Names of the text fields.
        milvus_index_type: Index type of Milvus, such as "HNSW".
        index_settings: Settings of this index type.
        metric_type: Metric of Milvus, "IP" or "L2".
    """
    kinds = import_pymilvus().DataType
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", kinds.INT64, is_primary=True)
    schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dim)
    for field in text_fields:
        schema.add_field(field, kinds.VARCHAR, max_length=65_535)
    index = client.prepare_index_params()
    index.add_index("vector", index_type=milvus_index_type, metric_type=metric_type, params=index_settings)
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")


def read_index_state(client: Any, store: MilvusStore) -> dict[str, Any] | None:
    """Read the stored state of an index, None if there is none."""
    if not client.has_collection(get_state_collection_name(store)):
        return None
    client.load_collection(get_state_collection_name(store))
    found = client.get(get_state_collection_name(store), ids=[0], output_fields=["body"])
    return json.loads(found[0]["body"]) if found else None


def get_state_collection_name(store: MilvusStore) -> str:
    """Return the name of the collection with the state of an index."""
    return f"{store.collection}_state"
