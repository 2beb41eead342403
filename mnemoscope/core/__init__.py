"""What everything else stands on: errors, configuration, axes, numerics, fingerprints, seeds."""
