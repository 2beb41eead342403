"""The numbers that the paper prints of its ABC model.

And its statements about them, worked out again.
"""

import numpy as np

from mnemoscope.studies.presentation import Statement

NAMES = ("A", "B", "C")
W_E = np.array([[1.1988, 1.3633], [-1.8032, -0.7401], [-1.0425, 1.4757]])  # rows A, B, C
W_POS = np.array(
    [[-0.3160, 0.9374], [-0.4459, 1.2218], [-0.2666, 0.9128]]
)  # rows: positions 0, 1, 2
W_U = np.array([[-0.5150, 1.2707], [1.1767, 1.2045], [-0.3778, -0.6578]])  # rows A, B, C; no bias
# of A at 0, B at 1, C at 2
INPUTS = np.array([[0.8829, 2.3007], [-2.2491, 0.4816], [-1.3090, 2.3885]])
DIRECTIONS = ((-1.0, 2.5), (1.0, 1.0), (-1.0, 1.75))  # times any t > 0: said to be read as A, B, C
ROUNDING = 3 * 0.5e-4  # two addends and their sum, each rounded to four digits


def inputs() -> list[Statement]:
    """Embedding plus position, entry by entry."""
    found = W_E + W_POS
    statements = []
    for i, name in enumerate(NAMES):
        for j in range(2):
            said = f"{name} at position {i}, entry {j}: {INPUTS[i, j]:.4f}"
            holds = bool(abs(found[i, j] - INPUTS[i, j]) <= ROUNDING + 1e-12)
            statements.append(Statement(said, f"{found[i, j]:.4f}", holds))
    return statements


def readings() -> list[Statement]:
    """The token that each direction is read as.

    Scaling by t > 0 scales all logits alike, so t = 1 settles all.
    """
    statements = []
    for name, direction in zip(NAMES, DIRECTIONS, strict=True):
        logits = W_U @ np.array(direction)
        values = ", ".join(f"{n} {x:.2f}t" for n, x in zip(NAMES, logits, strict=True))
        read = NAMES[int(logits.argmax())]
        x, y = direction
        said = f"({x:g}t, {y:g}t) is read as {name}"
        statements.append(Statement(said, f"it is read as {read} ({values})", read == name))
    return statements
