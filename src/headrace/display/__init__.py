"""How streams and answers look: pictures, HTML for notebooks, and progress bars. Nothing here runs a query."""
