"""Recall between images and captions in both directions, and zero-shot classification."""

COLUMNS = r"to_text_\d+|to_image_\d+|zero_shot"
KEY = r"to_text_\d+"
