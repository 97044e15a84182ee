"""The real `calico-bgp` against other people's speakers (see `catalogue` and `fabric`)."""

import pytest

pytest.register_assert_rewrite("tests.bgp_interop.sessions", "tests.bgp_interop.routes")
