"""felix that looks at itself every half second."""

from __future__ import annotations

import sys

from felix.main import main
from felix.reports import audit

if __name__ == "__main__":
    audit.INTERVAL = 0.5
    sys.exit(main())
