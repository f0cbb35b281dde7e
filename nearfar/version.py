"""Version of nearfar."""

__version__ = "0.2.0"
