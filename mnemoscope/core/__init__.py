"""What everything else stands on: errors, strict configuration, axes, numerics, fingerprints, seeds and devices."""
