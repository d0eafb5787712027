"""Headrace SQL, the stream dialect: text to syntax (`parse`), syntax to plans (`bind`), scripts and sessions."""
