"""The API by its own description: whatever it is asked, it does not break."""

import http.client
import shutil
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.ui.web.asking import Site
from tests.ui.web.conftest import serving

pytestmark = pytest.mark.slow

SLOW = (
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.filter_too_much,
    hypothesis.HealthCheck.data_too_large,
)


@pytest.fixture
def apart(project: Path, tmp_path: Path) -> Generator[Site]:
    """A copy, for settings are saved."""
    shutil.copytree(project / ".kept", tmp_path / ".kept", symlinks=True)
    yield from serving(tmp_path / ".kept")


def test_no_request_that_the_api_allows_breaks_it(apart: Site):
    site = apart
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it is built on
        import schemathesis
    described = site.get("/openapi.json").json
    assert len(described["paths"]) >= 18
    schema: Any = schemathesis.openapi.from_dict(described)
    run, agent, asked = site.run("artifact"), site.run("agent run"), 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.settings(
            max_examples=25,
            deadline=None,
            database=None,
            suppress_health_check=SLOW,
            derandomize=True,
        )
        @hypothesis.given(operation.as_strategy())
        def check(case: Any) -> None:
            nonlocal asked
            asked += 1
            # half of them of a run that is there, for what is behind it to be reached
            for name in ("run", "run_id"):
                if asked % 2 and name in (case.path_parameters or {}):
                    case.path_parameters[name] = agent if case.method == "GET" else run
            given = case.as_transport_kwargs(base_url=site.base)
            status = _ask(site, given)
            assert status < 500, given

        check()
    assert asked > 100


def _ask(site: Site, given: dict[str, Any]) -> int:
    import requests

    headers = {**dict(given.get("headers") or {}), "Cookie": site.cookie}
    try:
        reply = requests.request(
            given["method"],
            given["url"],
            params=given.get("params"),
            headers=headers,
            json=given.get("json"),
            data=given.get("data"),
            timeout=60,
            allow_redirects=False,
        )
    except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
        return 0  # no client can say that
    except (requests.exceptions.ConnectionError, http.client.HTTPException) as error:
        raise AssertionError(f"the server hung up: {given}") from error
    return reply.status_code
