"""The version of Headrace, for what is written to disk and for users. `pyproject.toml` has the same."""

__all__ = ["VERSION"]

VERSION = "0.2.0"
