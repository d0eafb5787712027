"""The native back end: an aggregate as a compiled loop over the tuples of all groups."""
