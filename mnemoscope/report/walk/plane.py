r"""Two dimensions can be drawn: where each token wins, and how every position travels from its embedding to the read-out.

Token t wins at x where  w_t . x + b_t  is largest: a convex region, cut out of the frame by one half-plane for each
rival token. What is drawn is the same for SVG and LaTeX: polygons, read-out directions, and one path a position.
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
    high: tuple[float, float]
    regions: dict[str, Points]  # by token; a token that wins nowhere in the frame has no points
    directions: dict[str, tuple[float, float]]
    stages: tuple[str, ...]  # what each arrow of a path is
    paths: dict[str, Points]  # by position: one point more than there are stages


def cut(
    polygon: Points, normal: Float[np.ndarray, "2"], offset: float
) -> Float[np.ndarray, "kept 2"]:
    """The part of a convex polygon where normal . x + offset >= 0."""
    kept: list[np.ndarray] = []
    for a, b in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        at_a, at_b = float(normal @ a + offset), float(normal @ b + offset)
        if at_a >= 0:
            kept.append(a)
        if (at_a > 0 > at_b) or (at_a < 0 < at_b):
            kept.append(a + (b - a) * at_a / (at_a - at_b))
    return np.array(kept).reshape(-1, 2)


def plane(walk: Walk) -> Plane | None:
    """The drawing of a walk, or None where the stream has more than two dimensions."""
    w, b = walk.read_out
    if w.shape[0] != 2:
        return None
    lines = {line.name: line.values for step in walk.steps for line in step.lines}
    stages = {"position": lines["X"], **dict(list(walk.stream.items())[1:])}
    if "N_final" in lines:
        stages["final norm"] = lines["N_final"]
    way = np.stack([lines["E"], *stages.values()])  # point, position, 2
    reach = 1.15 * max(1e-3, float(np.abs(way).max()), float(np.abs(w).max()))
    low, high = (-reach, -reach), (reach, reach)
    frame = np.array([low, (reach, -reach), high, (-reach, reach)])
    regions = {}
    for t, name in enumerate(walk.token_names):
        polygon = frame
        for rival in range(len(walk.token_names)):
            if rival != t and len(polygon):
                polygon = cut(polygon, w[:, t] - w[:, rival], float(b[t] - b[rival]))
        regions[name] = polygon
    directions = {name: (float(w[0, t]), float(w[1, t])) for t, name in enumerate(walk.token_names)}
    paths = {f"{i} {name}": way[:, i] for i, name in enumerate(walk.prompt)}
    return Plane(low, high, regions, directions, tuple(stages), paths)
