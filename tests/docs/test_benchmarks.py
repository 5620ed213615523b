"""Benchmarks are not run by the tests; what they import from the package must be there all the same."""

import ast
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FOLDER)) for path in FILES])
def test_names_imported_from_the_package_exist(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "assay":
            try:
                module = importlib.import_module(node.module)
            except ModuleNotFoundError as error:
                if (error.name or "").split(".")[0] == "assay":
                    raise
                pytest.skip(f"{error.name} is not installed")
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            for name in missing:
                importlib.import_module(f"{node.module}.{name}")
