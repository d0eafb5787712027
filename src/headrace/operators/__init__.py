"""Kernels: each turns batches of changes into batches of changes; `reference/` holds their slow, obvious twins."""
