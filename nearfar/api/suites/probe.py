"""Linear probes on a few labels a class, and on all labels."""

COLUMNS = r"few_labels|linear"
KEY = "linear"
