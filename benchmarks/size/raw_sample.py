"""Write a generated file in the exact format of a published one.

python benchmarks/size/raw_sample.py criteo raw/criteo --rows 2000000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fielddep.datasets.raw_samples import RAW_FORMATS, write_raw_sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RAW_FORMATS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_raw_sample(arguments.name, arguments.folder, arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
