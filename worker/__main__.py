"""`python -m worker MODULE:APP`: a worker for an existing server, the same as `perdure worker MODULE:APP`."""

from __future__ import annotations

import sys

from perdure.cli import main

if __name__ == "__main__":
    main(["worker", *sys.argv[1:]])
