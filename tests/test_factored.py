"""Matrices in two factors against the whole matrices, in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.models.factored_matrix import composition_scores


def factors(left, middle, right, leading=(2, 3), seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(*leading, left, middle)).astype("f4"),
        rng.normal(size=(*leading, middle, right)).astype("f4"),
    )


def close(ours, theirs, atol=2e-5):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("sizes", [(5, 2, 5), (3, 4, 3), (6, 2, 4), (2, 3, 7)])
def test_what_it_does_is_what_the_whole_matrix_does(sizes):
    a, b = factors(*sizes)
    whole = a @ b
    ours = ms.FactoredMatrix(a, b)
    assert (ours.shape, ours.ndim) == (whole.shape, whole.ndim)
    assert (ours.ldim, ours.mdim, ours.rdim) == sizes
    close(ours.AB, whole)
    close(ours.T.AB, whole.swapaxes(-1, -2))
    close(ours.norm(), np.linalg.norm(whole, axis=(-2, -1)))
    rank = min(sizes)
    close(ours.S[..., :rank], np.linalg.svd(whole, compute_uv=False)[..., :rank])
    u, s, v = ours.svd()
    close((u * s[..., None, :]) @ jnp.swapaxes(v, -1, -2), whole)
    close(ours.U @ jnp.swapaxes(ours.U, -1, -2) @ whole, whole)
    np.testing.assert_array_equal(ours.Vh, ours.V)
    even = ours.make_even()
    close(even.AB, whole)
    close(np.linalg.norm(even.A, axis=(-2, -1)), np.linalg.norm(even.B, axis=(-2, -1)))
    close((3 * ours).AB, 3 * whole)
    close((ours * jnp.array(-1.0)).AB, -whole)
    close(ours.get_corner(2), whole[..., :2, :2])
    close(ours.unsqueeze(1).AB, whole[:, None])
    np.testing.assert_array_equal(ours.pair[1], b)
    # what is on one side only does not change lengths on the other
    close(np.linalg.norm(ours.collapse_l(), axis=-2), np.linalg.norm(whole, axis=-2))
    close(np.linalg.norm(ours.collapse_r(), axis=-1), np.linalg.norm(whole, axis=-1))


def test_eigenvalues_are_those_of_the_whole_matrix_without_zeros():
    a, b = factors(5, 2, 5)
    ours = np.asarray(ms.FactoredMatrix(a, b).eigenvalues)
    whole = np.linalg.eigvals((a @ b).astype(float))
    for place in np.ndindex(2, 3):
        largest = sorted(whole[place], key=abs)[-2:]
        for value in largest:
            assert min(abs(ours[place] - value)) < 1e-4
    assert ours.shape == (2, 3, 2)


@pytest.mark.parametrize("sizes", [(5, 2, 5), (3, 4, 3)])
def test_products(sizes):
    a, b = factors(*sizes)
    whole = a @ b
    ours = ms.FactoredMatrix(a, b)
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(sizes[2], 4)).astype("f4")
    before = rng.normal(size=(4, sizes[0])).astype("f4")
    close((ours @ matrix).AB, whole @ matrix)
    for mine in (before, jnp.asarray(before)):
        close((mine @ ours).AB, before @ whole)
    close(ours @ matrix[:, 0], whole @ matrix[:, 0])
    close(before[0] @ ours, before[0] @ whole)
    square = ms.FactoredMatrix(*factors(sizes[2], 2, 3, (3,), seed=2))
    close((ours @ square).AB, whole @ np.asarray(square.AB))
    assert (ours @ square).mdim <= max(sizes[1], 3)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (1, 2),
        (slice(None), 0),
        slice(1),
        (None, 1),
        (0, 1, slice(1, 4)),
        (0, slice(None), slice(None), slice(2)),
    ],
    ids=str,
)
def test_parts(index):
    a, b = factors(5, 2, 5)
    np.testing.assert_array_equal(ms.FactoredMatrix(a, b)[index].AB, jnp.matmul(a, b)[index])


def test_a_row_or_a_column_stays_a_matrix():
    a, b = factors(5, 2, 4)
    ours = ms.FactoredMatrix(a, b)
    close(ours[0, 1, 3].AB, (a @ b)[0, 1, 3:4])
    close(ours[0, 1, -1, np.int64(2)].AB, (a @ b)[0, 1, 4:, 2:3])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda m: m[2], "has no such part: index 2 is out of bounds"),
        (lambda m: m[0, 0, 0, 0, 0], "has no such part: too many indices"),
        (lambda m: m[..., 0], r"takes no \.\.\."),
        (lambda m: m @ jnp.ones((5, 2)), r"shape \(2, 3, 5, 4\) times one of shape \(5, 2\)"),
        (lambda m: jnp.ones(4) @ m, r"as many rows as the left one has columns, here 5"),
        (lambda m: m * jnp.ones(3), r"\* with an array of shape \(3,\); allowed: a number"),
        (lambda m: m.eigenvalues, "as many rows as columns"),
        (lambda m: ms.FactoredMatrix(m.A, m.A), r"factors of shapes \(2, 3, 5, 2\) and"),
        (
            lambda m: ms.FactoredMatrix(m.A, jnp.ones((4, 2, 5))),
            r"factors of shapes .* \(4, 2, 5\)",
        ),
        (lambda m: ms.FactoredMatrix(m.A, jnp.ones(2)), r"allowed: \(\.\.\., left, middle\)"),
    ],
)
def test_what_cannot_be_is_one_line(asked, message):
    matrix = ms.FactoredMatrix(*factors(5, 2, 4))
    with pytest.raises(UserError, match=message) as error:
        asked(matrix)
    assert "\n" not in str(error.value)


def test_it_goes_through_jit_and_vmap():
    a, b = factors(5, 2, 5)
    ours = ms.FactoredMatrix(a, b)
    close(jax.jit(lambda m: m.norm())(ours), np.linalg.norm(a @ b, axis=(-2, -1)))
    corners = jax.vmap(lambda m: m.get_corner(1))(ours)
    close(corners, (a @ b)[..., :1, :1])
    assert "(2, 3, 5, 5), hidden dimension 2" in repr(ours)


@pytest.mark.parametrize("leading", [(), (2,)])
def test_composition_is_the_norm_of_the_product_over_the_norms(leading):
    writes = factors(5, 2, 5, (*leading, 2, 3))
    reads = factors(5, 2, 5, (*leading, 2, 3), seed=1)
    scores = composition_scores(ms.FactoredMatrix(*writes), ms.FactoredMatrix(*reads))
    left = writes[0] @ writes[1]
    right = reads[0] @ reads[1]
    assert scores.shape == (*leading, 2, 3, 2, 3)
    for seed, first, second in itertools.product(
        np.ndindex(*leading), np.ndindex(2, 3), np.ndindex(2, 3)
    ):
        one = left[seed + first]
        two = right[seed + second]
        expected = np.linalg.norm(one @ two) / np.linalg.norm(one) / np.linalg.norm(two)
        assert scores[seed + first + second] == pytest.approx(expected, rel=1e-4)
