"""One layer against two. A study."""
