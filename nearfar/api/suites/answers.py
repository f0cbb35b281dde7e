"""Answers in passages: exact match and F1, as SQuAD measures them."""

COLUMNS = r"exact|f1"
KEY = "exact"
