"""Macro-F1 and micro-F1 of the groups of nodes, by one classifier per group."""

COLUMNS = r"macro_f1|micro_f1"
KEY = "macro_f1"
