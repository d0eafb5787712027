"""How streams and answers look: pictures, HTML for notebooks, and short texts. Nothing here runs a query."""
