"""Attention maps of a cache: one SVG with every head and the tokens on its axes."""

import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.attention_maps import CELL
from mnemoscope.core.errors import UserError

CONFIG = ms.ModelConfig(d_model=4, n_heads=2, n_layers=2, d_mlp=0)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def cache():
    """What a model saw of three tokens."""
    from mnemoscope.models import init

    model = ms.Transformer(CONFIG, init(CONFIG, 5, 4, key=jax.random.key(0)))
    return model.run_with_cache([3, 1, 4])[1]


def test_every_head_is_drawn_with_its_weights_and_tokens(cache):
    maps = list(ET.fromstring(str(cache.attention())))
    assert len(maps) == 2 * 2
    pattern = np.asarray(cache["pattern", 1])[0]
    texts = [text.text for text in maps[2].iter(f"{SVG}text")]
    assert texts == ["L1H0", "3", "3", "1", "1", "4", "4"]
    drawn = np.zeros((3, 3))
    for square in maps[2].iter(f"{SVG}rect"):
        if square.find(f"{SVG}title") is not None:
            row, column = int(square.get("y")) // CELL, int(square.get("x")) // CELL
            drawn[row, column] = float(square.get("fill-opacity"))
    np.testing.assert_allclose(drawn, pattern, atol=1e-3)
    assert drawn[0, 0] == 1, "the first token sees itself alone"


def test_a_name_is_text_and_not_markup(cache, tmp_path):
    shown = cache.attention(["<b>", "&", "x" * 40], layer=0)
    assert [t.text for t in ET.fromstring(str(shown)).iter(f"{SVG}text")][1] == "<b>"
    assert shown.save(tmp_path / "maps.svg").read_text().startswith("<svg")
    assert len(repr(shown)) < 80
    assert "<svg" in shown._repr_html_()


def test_what_cannot_be_drawn_is_refused(cache, tmp_path):
    with pytest.raises(UserError, match="2 labels for 3 positions; allowed: one for each"):
        cache.attention(["a", "b"])
    with pytest.raises(UserError, match="unknown layer with attention '2'; allowed: 0, 1"):
        cache.attention(layer=2)
    with pytest.raises(UserError, match=r"written as .svg, got .*maps.png"):
        cache.attention().save(tmp_path / "maps.png")
    batch = cache.model.run_with_cache([[3, 1], [1, 2]])[1]
    with pytest.raises(UserError, match="one model on one prompt; this cache has batch in front"):
        batch.attention()
    one = cache.model.run_with_cache([[3, 1]])[1]
    assert str(one.attention()) == str(one.remove_batch_dim().attention())
