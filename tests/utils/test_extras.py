"""Optional packages: what is missing and what is broken are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsvx.errors import MissingExtraError
from graphsvx.utils.imports import require_extra


def failed_import(name: str) -> str:
    with pytest.raises(MissingExtraError) as caught:
        require_extra(name, "data")
    return str(caught.value)


def test_a_package_that_is_not_installed_is_asked_for() -> None:
    for name in ("nowhere_to_be_found", "nowhere_to_be_found.part"):
        message = failed_import(name)
        assert "'nowhere_to_be_found', which is not installed" in message
        assert 'pip install "graphsvx[data]"' in message


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('it requires\\n\\nNumPy 2.0')", "ImportError: it requires NumPy 2.0"),
        ("raise ValueError('numpy.dtype size changed')", "ValueError: numpy.dtype size changed"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_an_installed_package_that_cannot_be_imported_tells_why(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    message = failed_import("broken_package")
    assert f"'broken_package', which is installed but cannot be imported: {reason}" in message
    assert "not installed" not in message
    assert "\n" not in message


def test_a_version_that_lacks_a_module_is_not_called_missing() -> None:
    assert "installed but cannot be imported" in failed_import("json.nowhere_to_be_found")
