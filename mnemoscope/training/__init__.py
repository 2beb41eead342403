"""How a model changes: the Spec, the loss, one step, the compiled loop, and what is read while it
trains."""

from mnemoscope.core.devices import use_all_cores

# JAX can be told of the cores only before it first computes
use_all_cores()
