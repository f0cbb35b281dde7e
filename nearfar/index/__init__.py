"""Search indexes of vectors: build, open, search, add and delete.

index = build_index(vectors, names, "INDEX")        a folder, FAISS inside
index = build_index(vectors, names, "file.db")      a Milvus file; "http://host:19530" is a Milvus server
hits = open_index("INDEX").search(queries, k=10)    hits.scores and hits.rows, (q, k), the nearest first
index.describe_rows(hits.rows[0])                   names, labels, texts and paths of these rows
"""

from __future__ import annotations

from nearfar.index.base_index import Hits, Index
from nearfar.index.distance_metric import METRICS
from nearfar.index.faiss_engines import INDEX_TYPES
from nearfar.index.index_factory import build_index, check_index_target, open_index
from nearfar.index.model_identity import ModelIdentity, identify_model
from nearfar.index.queries import SearchQuery, read_query
from nearfar.index.row_table import RowTable, build_row_table
from nearfar.index.run_index import describe_hits, encode_data

__all__ = [
    "INDEX_TYPES",
    "METRICS",
    "Hits",
    "Index",
    "ModelIdentity",
    "RowTable",
    "SearchQuery",
    "build_index",
    "build_row_table",
    "check_index_target",
    "describe_hits",
    "encode_data",
    "identify_model",
    "open_index",
    "read_query",
]
