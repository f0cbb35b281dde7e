"""Routes of the server: one file for each topic. The files are the registry.

Each file defines `router`, which `build_app` includes. To add a topic, add a file to this folder.
"""
