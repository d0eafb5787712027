"""Input and output: reading and decoding files, encoding, atomic batches, and the generator of example streams."""
