"""The page at / of `nearfar serve`: plain files for the browser, and the paths that feed them."""
