"""The modules of docs/ can be imported, as they can where the site is built."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
