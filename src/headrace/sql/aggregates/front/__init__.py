"""The front end: what the text of an aggregate means, checked."""
