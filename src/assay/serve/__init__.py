"""A saved method behind HTTP: ``assay serve``. Needs the extra ``serve``; only the command imports it."""
