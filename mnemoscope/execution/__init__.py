"""Where training runs: the devices of this machine, or the workers of a cluster."""
