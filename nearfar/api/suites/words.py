"""Human judgments of word similarity and analogies. --data names a folder of judgments."""

COLUMNS = r"file .*"
KEY = r"file .*"
HINT = "name a folder of human judgments with --data, such as WordSim-353 or Google's analogies"
