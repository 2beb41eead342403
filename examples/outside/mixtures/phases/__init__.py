"""Which algorithm does a model have, and when? A study."""
