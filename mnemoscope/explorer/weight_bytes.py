r"""Weights as the page carries them: few bytes, and no number off by more than answers can bear.

For each seed and parameter there is a block (row, number), where a row is a snapshot. A parameter
that is the same at every snapshot, as a frozen one is, has one row. Of each block the numbers are

    24 bits    whole numbers q with x = low + q step, evenly spaced between the block's extremes
    32 bits    float32, as they are: of models so small that nothing is won

A row may be `rounded` to fewer bits of those 24: its lowest ones are then zero, and what is zero
everywhere takes no room. Rows after the first are written as differences from the row before
(modulo 2^bits), and a block with all its lowest bytes first, then the next ones: neighbors in
training are alike, and so are their high bytes. Then everything is deflated. `static/weights.js`
reads it back.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope.core.axes import Float, UInt
from mnemoscope.core.errors import UserError

GRID_BITS = 24
FLOAT_BITS = 32
LEVEL = 9  # of zlib: the smallest
RAW = -15  # zlib's word for a stream without its own header

# a seed's weights by parameter, with a row for each of its snapshots
Blocks = Mapping[str, Float[np.ndarray, "..."]]


def encode_weights(
    seeds: Sequence[Blocks], rounded: Sequence[Sequence[int]] | None = None
) -> dict[str, Any]:
    """The weights of some seeds, as JSON.

    Args:
        seeds: The blocks of each, all with the same parameters; some may have one row alone.
        rounded: For each seed and row the number of bits, up to 24; None leaves all numbers as they
            are.
    """
    bits = FLOAT_BITS if rounded is None else GRID_BITS
    constant = _constant_parameters(seeds)
    scales: list[list[float]] = []
    parts: list[bytes] = []
    for n, blocks in enumerate(seeds):
        for name, block in blocks.items():
            rows = block[:1] if name in constant else block
            flat = np.ascontiguousarray(rows, np.float32).reshape(len(rows), -1)
            # one row stands for all snapshots: it is as exact as any of them
            row_bits = None if rounded is None else _bits_of_rows(rounded[n], len(rows))
            numbers, scale = _to_integers(flat, row_bits)
            scales.append(scale)
            parts.append(_to_planes(numbers, bits))
    packer = zlib.compressobj(LEVEL, wbits=RAW)
    data = packer.compress(b"".join(parts)) + packer.flush()
    return {
        "bits": bits,
        "constant": constant,
        "scales": scales,
        "data": base64.b64encode(data).decode(),
    }


def decode_weights(
    packed: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    rows_by_seed: Sequence[int],
) -> list[dict[str, Float[np.ndarray, "..."]]]:
    """What the page makes of `encode_weights`: every seed's blocks, with a row for each snapshot.

    Args:
        packed: What was encoded.
        shapes: Of the parameters, in their order.
        rows_by_seed: How many snapshots each seed has.

    Raises:
        UserError: There are fewer or more numbers than these.
    """
    try:
        data = zlib.decompress(base64.b64decode(packed["data"], validate=True), RAW)
    except (ValueError, zlib.error) as error:
        raise UserError(f"weights cannot be unpacked: {error}") from None
    bits = packed["bits"]
    scales = iter(packed["scales"])
    begin = 0
    found: list[dict[str, np.ndarray]] = []
    for n_rows in rows_by_seed:
        blocks: dict[str, np.ndarray] = {}
        for name, shape in shapes.items():
            own_rows = 1 if name in packed["constant"] else n_rows
            end = begin + own_rows * int(np.prod(shape)) * bits // 8
            if end > len(data):
                raise UserError(f"weights cannot be unpacked: {name} is cut off")
            numbers = _from_planes(data[begin:end], own_rows, bits)
            rows = _to_floats(numbers, next(scales), bits).reshape(own_rows, *shape)
            blocks[name] = np.broadcast_to(rows, (n_rows, *shape))
            begin = end
        found.append(blocks)
    if begin != len(data):
        raise UserError("weights cannot be unpacked: there are more of them than parameters")
    return found


def round_block(block: Float[np.ndarray, "snap ..."], bits: int) -> Float[np.ndarray, "snap ..."]:
    """A block as it comes back, if all of its rows have so many bits.

    Args:
        block: Numbers of one parameter.
        bits: Up to 24.
    """
    flat = np.ascontiguousarray(block, np.float32).reshape(len(block), -1)
    numbers, scale = _to_integers(flat, [bits] * len(block))
    return _to_floats(numbers, scale, GRID_BITS).reshape(block.shape)


def _bits_of_rows(bits: Sequence[int], n_rows: int) -> Sequence[int]:
    """The bits of each row of a block, which may have one for all snapshots."""
    return bits if len(bits) == n_rows else [max(bits)]


def _constant_parameters(seeds: Sequence[Blocks]) -> list[str]:
    """The parameters that no seed changes from one of its snapshots to another."""
    names = seeds[0] if seeds else ()
    return [
        name for name in names if all((blocks[name] == blocks[name][:1]).all() for blocks in seeds)
    ]


def _to_integers(
    rows: Float[np.ndarray, "snap number"], row_bits: Sequence[int] | None
) -> tuple[UInt[np.ndarray, "snap number"], list[float]]:
    """Numbers as whole ones, and the scale that makes them what they were: [low, step]."""
    if row_bits is None:
        return rows.view(np.uint32), [0.0, 0.0]
    wide = rows.astype(np.float64)
    low = float(wide.min())
    highest = 2**GRID_BITS - 1
    step = (float(wide.max()) - low) / highest
    whole = (wide - low) / step if step else np.zeros_like(wide)
    coarse = np.exp2(GRID_BITS - np.array(row_bits))[:, None]
    nearest = np.rint(whole / coarse) * coarse
    # the nearest one may be the first that is too large
    kept = np.where(nearest > highest, nearest - coarse, nearest)
    return kept.astype(np.uint32), [low, step]


def _to_floats(
    numbers: UInt[np.ndarray, "snap number"], scale: Sequence[float], bits: int
) -> Float[np.ndarray, "snap number"]:
    """The way back."""
    if bits == FLOAT_BITS:
        return numbers.view(np.float32)
    low, step = scale
    return (low + numbers * float(step)).astype(np.float32)


def _to_planes(numbers: UInt[np.ndarray, "snap number"], bits: int) -> bytes:
    """Rows as differences, and byte by byte."""
    changes = numbers.copy()
    changes[1:] -= numbers[:-1]  # modulo 2^32; the lowest bytes are kept
    planes = changes.astype("<u4").reshape(-1, 1).view(np.uint8)
    return np.ascontiguousarray(planes[:, : bits // 8].T).tobytes()


def _from_planes(data: bytes, n_rows: int, bits: int) -> UInt[np.ndarray, "snap number"]:
    """The way back."""
    planes = np.frombuffer(data, np.uint8).reshape(bits // 8, n_rows, -1)
    changes = np.zeros(planes.shape[1:], np.uint32)
    for place, plane in enumerate(planes):
        changes |= plane.astype(np.uint32) << np.uint32(8 * place)
    numbers = np.cumsum(changes, axis=0, dtype=np.uint32)  # modulo 2^32
    return numbers & np.uint32(2**bits - 1)
