"""Accuracy of the nearest neighbors' labels."""

COLUMNS = "knn"
KEY = "knn"
