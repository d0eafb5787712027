"""The Python back end: an aggregate as a class, and what its code calls."""
