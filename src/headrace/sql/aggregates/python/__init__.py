"""The Python back end: an aggregate as a class, and the functions that its code calls."""
