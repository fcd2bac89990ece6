"""The documentation: pages, and in `docs.pages` what makes further pages when the site is built."""
