"""Explorer page of `nearfar serve`: static files and the paths behind them."""
