"""Files in, files out: decoding, encoding, atomic batches, and the seeded generator of example streams."""
