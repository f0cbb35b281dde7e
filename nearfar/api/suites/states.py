"""F1 of linear probes that predict the state variables of a game."""

COLUMNS = r"f1( .*)?"
KEY = "f1 converged"
