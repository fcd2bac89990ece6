"""What a first call prints while it compiles."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from daceml.runtime.progress import is_observed
from daceml.runtime.progress_lines import progress_lines

log = logging.getLogger(__name__)


def shown_while_compiling(name: str) -> AbstractContextManager[None]:
    """Show the progress of a block that compiles a module, where nothing else shows it.

    Lines go to the log at level INFO, or else to a terminal on stderr. A block of less than a second prints
    nothing.
    """
    if is_observed():
        return nullcontext()
    if log.isEnabledFor(logging.INFO):
        return progress_lines(log.info, f"compiling {name}")
    if sys.stderr.isatty():
        return progress_lines(partial(print, file=sys.stderr, flush=True), f"daceml: compiling {name}")
    return nullcontext()
