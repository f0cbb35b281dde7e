"""HTTP server of a run or an index: `nearfar serve`.

`lifecycle` starts it, `app` defines the paths.
"""
