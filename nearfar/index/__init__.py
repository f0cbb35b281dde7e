"""From vectors to neighbours: build an index, open it again, search it, add to it and delete from it.

index = build(vectors, names, "INDEX")              a folder, FAISS inside
index = build(vectors, names, "file.db")            a Milvus file; "http://host:19530" is a Milvus server
hits = open_index("INDEX").search(queries, k=10)    hits.scores and hits.rows, (q, k), the nearest first
index.items(hits.rows[0])                           what those rows are called
"""

from __future__ import annotations

from nearfar.index.build import build, check_target, open_index
from nearfar.index.distance_metric import METRICS
from nearfar.index.engines import KINDS
from nearfar.index.interface import Hits, Index
from nearfar.index.model_identity import Model, model_of
from nearfar.index.queries import Query, read_query
from nearfar.index.row_table import Items, items_of
from nearfar.index.run_index import add_data, answers, index_data, search

__all__ = [
    "KINDS",
    "METRICS",
    "Hits",
    "Index",
    "Items",
    "Model",
    "Query",
    "add_data",
    "answers",
    "build",
    "check_target",
    "index_data",
    "items_of",
    "model_of",
    "open_index",
    "read_query",
    "search",
]
