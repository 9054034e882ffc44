"""`python -m e2e.couchbase_emulator`."""

import sys

from e2e.couchbase_emulator.cli import main

sys.exit(main())
