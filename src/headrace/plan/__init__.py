"""The plan: what a query computes, as frozen nodes; how it is told to people (`explain`)."""
