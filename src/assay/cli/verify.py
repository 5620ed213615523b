"""``assay verify``: the claims of papers, re-run."""
