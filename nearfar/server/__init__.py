"""`nearfar serve`: a run or an index behind HTTP. One idea a file; `command` is where it begins, `app` where the paths are."""
