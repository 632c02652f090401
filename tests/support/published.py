"""Published logs and results, which only the maintainers have beside their checkout."""

import pytest

from rn50.files import ROOT

FOLDER = ROOT.parent / "shared" / "published"
LOGS = FOLDER / "logs"
needs_published = pytest.mark.published
"""The mark of a test of them: `make test` leaves it out, `make test-all` skips it where they are absent."""
