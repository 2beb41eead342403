r"""A matrix held as the product of two thin ones, as heads' circuits are.

    M = A B        A (left, middle)    B (middle, right)

A head of a wide model reads and writes through few dimensions, so its OV and QK circuits have a
low rank: norms, singular values and eigenvalues are taken of the factors. All names and values are
those of TransformerLens's FactoredMatrix.
"""

from collections.abc import Iterator
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.errors import UserError


@jax.tree_util.register_pytree_node_class
class FactoredMatrix:
    """A B, for any leading axes such as (layer, head). Being a pytree, it goes through `jit`."""

    # NumPy leaves `array @ factored` to this class
    __array_ufunc__ = None

    def __init__(self, A: Any, B: Any):
        """Two factors.

        Args:
            A: (..., left, middle).
            B: (..., middle, right).
        """
        left = jnp.asarray(A)
        right = jnp.asarray(B)
        fits = left.ndim > 1 and right.ndim > 1 and left.shape[-1] == right.shape[-2]
        leading = _common_axes(left.shape[:-2], right.shape[:-2])
        if not fits or leading is None:
            raise UserError(
                f"factors of shapes {left.shape} and {right.shape}; allowed: (..., left, middle) "
                "and (..., middle, right)"
            )
        self.A = jnp.broadcast_to(left, (*leading, *left.shape[-2:]))
        self.B = jnp.broadcast_to(right, (*leading, *right.shape[-2:]))

    # ---- as a pytree

    def tree_flatten(self) -> tuple[tuple[Any, Any], None]:
        """The two factors."""
        return (self.A, self.B), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, Any]) -> "FactoredMatrix":
        """The same matrix from its factors, whatever stands in for them while JAX traces."""
        self = object.__new__(cls)
        self.A = children[0]
        self.B = children[1]
        return self

    # ---- sizes

    @property
    def ldim(self) -> int:
        """Rows."""
        return self.A.shape[-2]

    @property
    def mdim(self) -> int:
        """What the factors share: no rank is larger."""
        return self.A.shape[-1]

    @property
    def rdim(self) -> int:
        """Columns."""
        return self.B.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading axes, rows, columns."""
        return (*self.A.shape[:-1], self.rdim)

    @property
    def ndim(self) -> int:
        """Axes, the leading ones too."""
        return self.A.ndim

    @property
    def has_leading_dims(self) -> bool:
        """Whether axes stand before rows and columns."""
        return self.ndim > 2

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator["FactoredMatrix"]:
        """Parts along the first axis, as `[i]` takes them."""
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<FactoredMatrix of shape {self.shape}, hidden dimension {self.mdim}>"

    # ---- the matrix itself, and others made from it

    @property
    def AB(self) -> Float[Array, "*leading left right"]:
        """The whole matrix."""
        return self.A @ self.B

    @property
    def BA(self) -> Float[Array, "*leading middle middle2"]:
        """The factors the other way round, where rows and columns are as many."""
        if self.ldim != self.rdim:
            raise UserError(
                f"BA of a matrix of shape {self.shape}; allowed: as many rows as columns"
            )
        return self.B @ self.A

    @property
    def T(self) -> "FactoredMatrix":
        """The transposed matrix."""
        return FactoredMatrix(jnp.swapaxes(self.B, -1, -2), jnp.swapaxes(self.A, -1, -2))

    @property
    def pair(self) -> tuple[Array, Array]:
        """Both factors."""
        return (self.A, self.B)

    def __matmul__(self, other: Any) -> Union["FactoredMatrix", Array]:
        """Times a vector, which gives a vector, or times a matrix, factored or not."""
        if isinstance(other, FactoredMatrix):
            product = self @ other.A
            return product @ other.B
        other = jnp.asarray(other)
        self._check_product(other.shape[-2:][0] if other.ndim else None, self.rdim, other.shape)
        if other.ndim == 1:
            return jnp.squeeze(self.A @ (self.B @ other[:, None]), -1)
        if self.rdim > self.mdim:
            return FactoredMatrix(self.A, self.B @ other)
        return FactoredMatrix(self.AB, other)

    def __rmatmul__(self, other: Any) -> Union["FactoredMatrix", Array]:
        """A vector or a matrix times this one."""
        other = jnp.asarray(other)
        self._check_product(other.shape[-1] if other.ndim else None, self.ldim, other.shape)
        if other.ndim == 1:
            return jnp.squeeze((other[None] @ self.A) @ self.B, -2)
        if self.ldim > self.mdim:
            return FactoredMatrix(other @ self.A, self.B)
        return FactoredMatrix(other, self.AB)

    def _check_product(self, came: int | None, size: int, shape: tuple[int, ...]) -> None:
        if came != size:
            raise UserError(
                f"a matrix of shape {self.shape} times one of shape {shape}; allowed: as many "
                f"rows as the left one has columns, here {size}"
            )

    def __mul__(self, scalar: Any) -> "FactoredMatrix":
        """Times a number."""
        if jnp.size(scalar) != 1:
            raise UserError(
                f"* with an array of shape {jnp.shape(scalar)}; allowed: a number (@ multiplies "
                "matrices)"
            )
        return FactoredMatrix(self.A * jnp.reshape(scalar, (1,) * self.A.ndim), self.B)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> "FactoredMatrix":
        """Parts along leading axes, and then along rows and columns.

        A single row or column stays a matrix.
        """
        index = index if isinstance(index, tuple) else (index,)
        try:
            # JAX would take the nearest part that there is
            _ = np.broadcast_to(0, self.shape)[index]
        except IndexError as error:
            raise UserError(
                f"a FactoredMatrix of shape {self.shape} has no such part: {error}"
            ) from None
        if any(part is Ellipsis for part in index):
            raise UserError("a FactoredMatrix takes no ...; allowed: numbers and slices, from left")
        given = sum(part is not None for part in index)
        n_leading = self.ndim - 2
        beyond = max(given - n_leading, 0)
        leading = index[: len(index) - beyond]
        # axes that the leading part does not name stay whole
        leading += (slice(None),) * max(n_leading - given, 0)
        rows = _as_slice(index[-beyond]) if beyond else slice(None)
        columns = _as_slice(index[-1]) if beyond == 2 else slice(None)
        return FactoredMatrix(
            self.A[(*leading, rows, slice(None))], self.B[(*leading, slice(None), columns)]
        )

    def unsqueeze(self, axis: int) -> "FactoredMatrix":
        """With a leading axis of size 1 put in."""
        return FactoredMatrix(jnp.expand_dims(self.A, axis), jnp.expand_dims(self.B, axis))

    def get_corner(self, k: int = 3) -> Array:
        """The first k rows and columns."""
        return self.A[..., :k, :] @ self.B[..., :, :k]

    # ---- what it does

    def svd(self) -> tuple[Array, Array, Array]:
        """U, S and V with M = U diag(S) V^T, the largest singular values first."""
        u_a, s_a, v_a = jnp.linalg.svd(self.A, full_matrices=False)
        u_b, s_b, v_b = jnp.linalg.svd(self.B, full_matrices=False)
        middle = (s_a[..., :, None] * v_a) @ (u_b * s_b[..., None, :])
        u_m, s, v_m = jnp.linalg.svd(middle, full_matrices=False)
        return u_a @ u_m, s, jnp.swapaxes(v_m @ v_b, -1, -2)

    @property
    def U(self) -> Float[Array, "*leading left middle"]:
        """Left singular vectors, as columns."""
        return self.svd()[0]

    @property
    def S(self) -> Float[Array, "*leading middle"]:
        """Singular values, the largest first."""
        return self.svd()[1]

    @property
    def V(self) -> Float[Array, "*leading right middle"]:
        """Right singular vectors, as columns."""
        return self.svd()[2]

    @property
    def Vh(self) -> Float[Array, "*leading right middle"]:
        """V once more: what TransformerLens has under this name."""
        return self.V

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalues, without the zeros that the rank leaves: those of B A."""
        # JAX has no eigenvalues of general matrices on most accelerators
        cpu = jax.devices("cpu")[0]
        return jnp.linalg.eigvals(jax.device_put(self.BA, cpu))

    def norm(self) -> Float[Array, "*leading"]:
        """The Frobenius norm."""
        return jnp.sqrt(jnp.square(self.S).sum(axis=-1))

    def make_even(self) -> "FactoredMatrix":
        """The same matrix with its singular values in equal parts on both sides."""
        u, s, v = self.svd()
        root = jnp.sqrt(s)[..., None, :]
        return FactoredMatrix(u * root, jnp.swapaxes(v * root, -1, -2))

    def collapse_l(self) -> Float[Array, "*leading middle right"]:
        """diag(S) V^T: what is left when directions on the left do not matter."""
        _, s, v = self.svd()
        return s[..., :, None] * jnp.swapaxes(v, -1, -2)

    def collapse_r(self) -> Float[Array, "*leading left middle"]:
        """U diag(S): what is left when directions on the right do not matter."""
        u, s, _ = self.svd()
        return u * s[..., None, :]


def _as_slice(index: Any) -> Any:
    """An index that keeps its axis."""
    is_one = hasattr(index, "__index__") and np.ndim(index) == 0
    return slice(int(index), int(index) + 1 or None) if is_one else index


def composition_scores(
    left: FactoredMatrix, right: FactoredMatrix
) -> Float[Array, "*seed layer head layer2 head2"]:
    r"""How much of what one head writes another one reads, for all pairs.

        |L R| / (|L| |R|)        Frobenius norms

    Args:
        left: The circuits of those that write, (..., layer, head) in front.
        right: The circuits of those that read.
    """
    writes = left.collapse_l()
    reads = right.collapse_r()
    together = jnp.einsum("...abmd,...xydn->...abxymn", writes, reads)
    of_pairs = jnp.sqrt(jnp.square(together).sum(axis=(-1, -2)))
    of_writers = left.norm()[..., :, :, None, None]
    of_readers = right.norm()[..., None, None, :, :]
    return of_pairs / of_writers / of_readers


def _common_axes(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of two arrays side by side; None where they do not go together."""
    try:
        return np.broadcast_shapes(left, right)
    except ValueError:
        return None
