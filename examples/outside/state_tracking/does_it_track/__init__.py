"""Who keeps track of a state? A study."""
