"""Strict JAX for every test, shapes checked at run time, and as many CPU devices as there are cores."""

from jaxtyping import install_import_hook

# must come before the first import of the package: every annotated function then checks its shapes
install_import_hook("mnemoscope", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")

# without shrinking: each example compiles anew, and minutes spent on a smaller failure are not worth it
settings.register_profile(
    "wide", deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)  # fmt: skip
# the same examples each time, so that a test fails for what was changed; `pytest --hypothesis-profile wide` looks for new ones
settings.register_profile("house", settings.get_profile("wide"), derandomize=True, database=None)
settings.load_profile("house")


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    from mnemoscope.store import Store

    return Store(tmp_path / "store")
