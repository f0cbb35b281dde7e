"""Passage retrieval: questions that find a passage which answers them."""

COLUMNS = r"top\d+|mrr"
KEY = "top1"
