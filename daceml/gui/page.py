"""The page: one HTML file made of `assets/`, live beside a server, or with everything inside."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

STYLE = "page.css"
SCRIPTS = ("text.js", "layout.js", "graph.js", "model.js", "timeline.js", "variants.js", "page.js")
"""In the order in which they are loaded; the last one begins."""


def _hash(script: str) -> str:
    """As a policy names a script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@lru_cache
def asset(name: str) -> str:
    """The text of a file of `assets/`."""
    return (resources.files("daceml.gui") / "assets" / name).read_text(encoding="utf-8")


def live_page(title: str, token: str) -> str:
    """The page of a server, which asks it for everything."""
    links = f'<link rel="stylesheet" href="/{STYLE}?token={token}"><link rel="icon" href="data:,">'
    scripts = "".join(f'<script src="/{name}?token={token}"></script>' for name in SCRIPTS)
    return _page(title, links, f'<main id="page" data-token="{escape(token)}"></main>{scripts}')


_AGAIN = (
    'let token = null; try { token = sessionStorage.getItem("daceml-token"); } catch {} '
    'if (token) location.replace("/?token=" + encodeURIComponent(token));'
)
AGAIN_POLICY = f"default-src 'none'; script-src '{_hash(_AGAIN)}'; base-uri 'none'; frame-ancestors 'none'"


def again_page(why: str) -> str:
    """For a request without a token: a tab that had the page, and was reloaded, goes back to it.

    Args:
        why: nobody else sees more.
    """
    return _page("refused", "", f"<p>{escape(why)}</p><script>{_AGAIN}</script>")


def report_page(view: dict[str, Any]) -> str:
    """The page as one file: nothing is loaded, nothing can be applied.

    Args:
        view: what a `*_view` module gives.
    """
    script = "".join(asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'; img-src data:"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{asset(STYLE)}</style>'
    # in a script element only the end of that element, and a comment, would end the text
    data = json.dumps(view, separators=(",", ":")).replace("<", "\\u003c")
    body = f'<main id="page"></main><script type="application/json" id="view">{data}</script>'
    return _page(str(view.get("title", "")), head, f"{body}<script>{script}</script>")


def framed(view: dict[str, Any], *, height: int = 520) -> str:
    """The report as a frame for a notebook, which keeps its scripts and styles to itself."""
    return (
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{height}px;border:1px solid #8884" '
        f'srcdoc="{escape(report_page(view))}"></iframe>'
    )


def _page(title: str, head: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - daceml</title>{head}</head><body>{body}</body></html>\n"
    )
