"""Eight pipelines of a data engineer, each checked against pandas: `python -m examples.pipelines`."""
