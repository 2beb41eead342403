"""How a model changes: the Spec, the loss, one step, the compiled loop, and what is read while it trains."""
