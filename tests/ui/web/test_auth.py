"""Who is let in, on the real server over real HTTP."""

import pytest

from tests.ui.web.asking import Site

pytestmark = pytest.mark.slow

DONE = (
    "/settings", "/api/settings", "/runs/x/refine", "/runs/x/refine/cancel",
    "/api/experiments/x/refine", "/api/experiments/x/refine/cancel",
)  # fmt: skip
PLACES = ("/", "/api/runs", "/runs/x", "/openapi.json", "/static/app.js", "/events", "/nowhere")


@pytest.mark.parametrize("path", PLACES)
def test_without_a_token_there_is_nothing(site: Site, path: str):
    reply = site.ask(path)
    assert reply.status == 401
    assert "kept view" in reply.text


@pytest.mark.parametrize("token", ["", "x", "é", "0" * 32])
def test_a_wrong_token_gets_nothing(site: Site, token: str):
    from urllib.parse import quote

    assert site.ask(f"/?token={quote(token)}").status == 401
    value = token.encode().decode("latin-1")
    assert site.ask("/", Cookie=f"kept-{site.port}={value}").status == 401


@pytest.mark.parametrize("other", ['a={"x": 1}', "a b=1", 'x="un', "a[]=1", "é=1", "=", ";;"])
def test_cookies_of_other_programs_on_this_machine_lock_nobody_out(site: Site, other: str):
    others = other.encode().decode("latin-1")
    assert site.ask("/api/settings", Cookie=f"{others}; {site.cookie}").status == 200
    assert site.ask("/api/settings", Cookie=f"{site.cookie}x; {others}").status == 401


def test_two_tokens_are_not_a_token(site: Site):
    assert site.ask(f"/?token={site.token}&token=x").status == 401


def test_the_link_is_traded_for_a_cookie_that_scripts_and_other_sites_cannot_use(site: Site):
    reply = site.ask(f"/runs/x?show=kept&token={site.token}")
    assert reply.status == 303
    assert reply.headers["location"] == "/runs/x?show=kept"
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie


def test_the_link_leads_to_no_other_host(site: Site):
    for path in ("//evil.example/x", "/\\evil.example", "///evil.example"):
        reply = site.ask(f"{path}?token={site.token}")
        assert reply.status == 303
        assert reply.headers["location"].startswith("/")
        assert not reply.headers["location"].startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1", "127.0.0.1.evil:80", ""]
)
def test_a_foreign_host_gets_nothing_even_with_the_token(site: Site, host: str):
    assert site.get("/", Host=host).status == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://x"]
)
def test_a_foreign_origin_gets_nothing_even_with_the_token(site: Site, origin: str):
    assert site.get("/api/runs", Origin=origin).status == 403


@pytest.mark.parametrize("where", ["cross-site", "same-site"])
def test_a_request_that_a_browser_says_is_of_another_site_gets_nothing(site: Site, where: str):
    assert site.get("/", Sec_Fetch_Site=where).status == 403


def test_our_own_origin_is_let_in(site: Site):
    assert site.get("/", Origin=site.base, Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed_but_where_a_page_asks_for_it(site: Site, method: str):
    assert site.ask("/", method=method, Cookie=site.cookie).status == 405
    if method != "POST":
        for path in DONE:
            assert site.ask(path, method=method, Cookie=site.cookie).status == 405


@pytest.mark.parametrize("path", DONE)
def test_nothing_is_done_for_a_stranger(site: Site, path: str):
    before = site.get("/api/settings").text
    form = {"Content_Type": "application/x-www-form-urlencoded", "body": "act=x&iterations=9"}
    told = {"Content_Type": "application/json", "body": '{"refinement_default_iterations": 9}'}
    for sent in (form, told):
        assert site.ask(path, method="POST", **sent).status == 401
        assert site.ask(path, method="POST", Cookie=f"kept-{site.port}=x", **sent).status == 401
        for stranger in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"http://127.0.0.1:{site.port + 1}"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
            {"Sec_Fetch_Site": "none"},
            {"Host": "evil.example"},
        ):
            reply = site.ask(path, method="POST", Cookie=site.cookie, **stranger, **sent)
            assert reply.status == 403, stranger
    assert site.get("/api/settings").text == before


@pytest.mark.parametrize("path", ["/settings", "/runs/x/refine", "/runs/x/refine/cancel"])
def test_a_form_without_the_token_of_our_forms_does_nothing(site: Site, path: str):
    kind = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": site.cookie}
    for body in ("iterations=9", "act=&iterations=9", f"act={site.token}", "act=%C3%A9"):
        assert site.ask(path, method="POST", body=body, **kind).status == 403
    wrong = {**kind, "Content_Type": "text/plain"}
    assert site.ask(path, method="POST", body="iterations=9", **wrong).status == 415
    assert site.ask(path, method="POST", body="x" * 70_000, **kind).status == 413


def test_every_answer_has_the_policy(site: Site):
    for reply in (site.get("/"), site.ask("/"), site.get("/static/app.css"), site.get("/nowhere")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"


def test_it_listens_on_this_machine_alone(site: Site):
    import socket

    with socket.socket() as other:
        other.settimeout(2)
        # every address of 127/8 is this machine, and only one of them is listened on
        assert other.connect_ex(("127.0.0.2", site.port)) != 0
