"""Recipes for sounds."""
