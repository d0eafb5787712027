"""Run the pipelines, or one of them, and compare each answer with pandas: `python -m examples.pipelines sessions`."""

from __future__ import annotations

import argparse
import inspect
import tempfile
from pathlib import Path

from examples.pipelines.data import write
from examples.pipelines.expected import EXPECTED, difference
from examples.pipelines.queries import PIPELINES


def main() -> None:
    """Print the question, the first rows of the answer, and what pandas says."""
    parser = argparse.ArgumentParser(prog="python -m examples.pipelines", description=__doc__)
    parser.add_argument("pipeline", nargs="*", metavar="PIPELINE", help=", ".join(PIPELINES))
    parser.add_argument("--host", choices=["local", "spark"], default="local", help="where it runs (%(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for name in given.pipeline or PIPELINES:
            stream = PIPELINES[name](Path(folder))
            print(f"{name}: {inspect.getdoc(PIPELINES[name])}\n")
            answer = stream.cht(host=given.host).to_pandas()
            print(answer.head(5).to_string(index=False))
            wrong = difference(answer, EXPECTED[name](Path(folder)))
            print(f"{len(answer)} rows; " + (f"pandas differs: {wrong}" if wrong else "pandas agrees") + "\n")


if __name__ == "__main__":
    main()
