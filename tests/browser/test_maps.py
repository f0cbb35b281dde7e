"""Every library that draws maps, as the explorer calls it. Importing them takes longer than drawing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from nearfar.server.explorer import maps


@pytest.mark.parametrize("method", maps.list_map_methods())
def test_maps_keep_clouds_apart_and_say_how_far_they_are(method):
    cloud = np.arange(300) * 3 // 300
    x = (np.random.default_rng(0).normal(size=(300, 8)) + 20 * np.eye(3, 8)[cloud]).astype(np.float32)
    said: list[float] = []
    points = maps.MapProcess()(x, method, 0, said.append)
    nearest = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points)[1][:, 1:]
    assert (cloud[nearest] == cloud[:, None]).mean() > 0.95
    assert said == sorted(said)
    assert bool(said) == (method in maps.ITERATIONS)
    assert np.abs(points).max() == pytest.approx(1)
