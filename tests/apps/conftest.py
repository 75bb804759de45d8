"""A browser without a window, for pages that are to be looked at."""

import os
import re
import shutil
import subprocess

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
def screenshot(tmp_path):
    """Opens a page as on a desk and on a phone, and refuses what a browser complains about."""
    browser = os.environ.get("SHOTFIT_BROWSER") or next(
        (found for name in BROWSERS if (found := shutil.which(name))), None
    )
    if browser is None:
        pytest.skip("there is no Chromium here; SHOTFIT_BROWSER may name one")

    def shoot(page):
        for size in ("1280,1600", "390,1600"):
            picture = tmp_path / f"{size}.png"
            found = subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                    *(f"--window-size={size}", f"--screenshot={picture}", page.as_uri()),
                ],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert picture.is_file(), found.stderr
            assert picture.stat().st_size > 10_000
            assert not re.search(r"Refused to|CONSOLE.*error", found.stderr)

    return shoot
