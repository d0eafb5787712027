"""The front end: checks the text of an aggregate and builds its definition."""
