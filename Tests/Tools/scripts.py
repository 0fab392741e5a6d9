"""Scripts without the ending .py, as modules."""
import importlib.machinery
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def benchmark(name):
    """A script of Benchmarks/ as a module; nothing is left beside it."""
    loader = importlib.machinery.SourceFileLoader(f"benchmark_{name}", str(ROOT / "Benchmarks" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = was
    return module
