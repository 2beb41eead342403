"""Numbers beyond which something was mistyped."""

# more than anyone means, and few enough to be listed
MAX_SEEDS = 1_000_000
