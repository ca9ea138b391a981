"""The command line, as ``python -m hybridq``."""

from __future__ import annotations

from hybridq.cli import main

if __name__ == "__main__":
    main()
