"""Link prediction: filtered ranks of the heads and tails of test triples."""

COLUMNS = r"mrr|hits\d+|mean_rank"
KEY = "hits10"
