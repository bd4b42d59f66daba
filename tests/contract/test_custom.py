"""The guide's part of the contract over a custom class."""

from __future__ import annotations

import pytest

from keepstate.testing.contract import GuideContract
from tests.support.custom_class import DictStore


class TestCustomClass(GuideContract):
    @pytest.fixture
    def backend(self) -> DictStore:
        """An empty one."""
        return DictStore()
