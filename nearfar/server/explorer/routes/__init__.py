"""Routes of the explorer: one file for each topic. The files are the registry.

Each file defines `router`. To add a topic, add a file to this folder.

Arrays are sent as raw little-endian numbers, everything else as JSON.
"""
