"""The page as one file: everything is inside, and nothing of what is shown is taken for HTML or a script."""

from __future__ import annotations

import re

from daceml.gui.page import SCRIPTS, STYLE, asset, framed, live_page, report_page


def test_a_report_holds_everything_and_loads_nothing():
    page = report_page(
        {"kind": "variants", "title": "a <b> & c", "rows": ["</script><script>alert(1)</script>"]}
    )
    assert "<title>a &lt;b&gt; &amp; c - daceml</title>" in page
    assert page.count("<script") == 2 and "</script><script>alert" not in page
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert "script-src 'sha256-" in page and "default-src 'none'" in page


def test_the_live_page_names_its_parts():
    page = live_page("Net", "secret")
    assert [f'src="/{name}?token=secret"' in page for name in SCRIPTS] == [True] * len(SCRIPTS)
    assert f'href="/{STYLE}?token=secret"' in page


def test_scripts_make_no_html_of_texts():
    for name in SCRIPTS:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", asset(name)), (
            name
        )


def test_a_notebook_gets_a_frame_without_rights():
    frame = framed({"kind": "variants", "title": 'x"y'})
    assert frame.startswith('<iframe sandbox="allow-scripts"') and frame.count("<iframe") == 1
    assert '"x' not in frame.split("srcdoc=", 1)[1][1:-12]
