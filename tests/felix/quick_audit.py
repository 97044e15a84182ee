"""felix that looks at itself every half second."""

from __future__ import annotations

import sys

from felix import audit
from felix.main import main

if __name__ == "__main__":
    audit.INTERVAL = 0.5
    sys.exit(main())
