"""Write a synthetic click log, as the benchmarks of size use it.

python benchmarks/size/generate.py clicks.csv --rows 40000000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fielddep.datasets.synthetic import write_clicks_csv
from fielddep.datasets.synthetic_clicks import N_CATEGORIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--categories", type=int, default=N_CATEGORIES)
    arguments = parser.parse_args()
    write_clicks_csv(arguments.path, arguments.rows, arguments.seed, n_categories=arguments.categories)


if __name__ == "__main__":
    main()
