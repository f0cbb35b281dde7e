"""HTTP server of a run or an index: `nearfar serve`.

`lifecycle` starts it, `app` builds the application, and each file of `routes` and `explorer/routes` defines the
paths of one topic.
"""
