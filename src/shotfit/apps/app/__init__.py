"""A project in the browser: pictures, classes, a classifier; `shotfit app`."""
