r"""Two dimensions can be drawn: where each token wins, and how every position travels.

A position travels from its embedding to the read-out. Token t wins at x where  w_t . x + b_t  is
largest: a convex region, cut out of the frame by one half-plane for each rival token. What is drawn
is the same for SVG and LaTeX: polygons, read-out directions, and one path a position.
"""

from dataclasses import dataclass

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.probes.walk import Walk

Points = Float[np.ndarray, "_ 2"]  # as many points as it takes


@dataclass(frozen=True)
class Plane:
    """What is drawn, in the coordinates of the residual stream."""

    low: tuple[float, float]
    """The lower left corner of the frame."""
    high: tuple[float, float]
    """Its upper right corner."""
    regions: dict[str, Points]
    """Where each token wins; one that wins nowhere in the frame has no points."""
    directions: dict[str, tuple[float, float]]
    """The read-out direction of each token."""
    stages: tuple[str, ...]
    """What each arrow of a path is."""
    paths: dict[str, Points]
    """By position: one point more than there are stages."""


def cut_polygon(
    polygon: Points, normal: Float[np.ndarray, "2"], offset: float
) -> Float[np.ndarray, "kept 2"]:
    """The part of a convex polygon where normal . x + offset >= 0.

    Args:
        polygon: Its corners, in order.
        normal: Of the line that cuts.
        offset: Of that line.
    """
    kept: list[np.ndarray] = []
    for a, b in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        at_a = float(normal @ a + offset)
        at_b = float(normal @ b + offset)
        if at_a >= 0:
            kept.append(a)
        if (at_a > 0 > at_b) or (at_a < 0 < at_b):
            kept.append(a + (b - a) * at_a / (at_a - at_b))
    return np.array(kept).reshape(-1, 2)


def _regions(
    walk: Walk, frame: Points, w: Float[np.ndarray, "2 token"], b: Float[np.ndarray, "token"]
) -> dict[str, Points]:
    """Where in the frame each token wins."""
    tokens = range(len(walk.token_names))
    regions = {}
    for t, name in enumerate(walk.token_names):
        polygon = frame
        for rival in tokens:
            if rival != t and len(polygon):
                polygon = cut_polygon(polygon, w[:, t] - w[:, rival], float(b[t] - b[rival]))
        regions[name] = polygon
    return regions


def find_plane(walk: Walk) -> Plane | None:
    """The drawing of a walk, or None where the stream has more than two dimensions."""
    w, b = walk.read_out
    if w.shape[0] != 2:
        return None
    lines = {line.name: line.values for step in walk.steps for line in step.lines}
    after_embedding = list(walk.stream.items())[1:]
    # a vector of the position is added, or there is none
    stages = {"position": lines["X"]} if "P" in lines else {}
    stages |= after_embedding
    if "N_final" in lines:
        stages["final norm"] = lines["N_final"]
    start = lines.get("E", lines["X"])
    way = np.stack([start, *stages.values()])  # point, position, 2
    reach = 1.15 * max(1e-3, float(np.abs(way).max()), float(np.abs(w).max()))
    low = (-reach, -reach)
    high = (reach, reach)
    frame = np.array([low, (reach, -reach), high, (-reach, reach)])
    return Plane(
        low=low,
        high=high,
        regions=_regions(walk, frame, w, b),
        directions={
            name: (float(w[0, t]), float(w[1, t])) for t, name in enumerate(walk.token_names)
        },
        stages=tuple(stages),
        paths={f"{i} {name}": way[:, i] for i, name in enumerate(walk.prompt)},
    )
