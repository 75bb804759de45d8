"""The tabs of the page, one a file: each makes its components, and shows what there is."""
