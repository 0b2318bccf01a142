"""The options that benchmarks of rows have in common: auto.py, papers.py, published.py.

    benchmark [ROW …] [--list] [--results FILE] [--limit CPU-SECONDS] [--verbose] [--check]

A row is named by its name, or by how that begins.
"""

import argparse
import pathlib


def row_parser(description, check=None):
    """Returns a parser with these options; `check`: what --check is for, if the description does not say it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="names, or how they begin; all of them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=300, help="CPU seconds of a command")
    parser.add_argument("--verbose", action="store_true", help="prints each command that is run")
    parser.add_argument("--check", action="store_true", help=check)
    return parser


def is_asked(o, name):
    return not o.names or any(name.startswith(n) for n in o.names)
