"""Records: what runs and studies leave, one JSON file each.

Nothing here needs torch, so that tables and figures are made wherever the files are.
"""

from shotfit.records.run import (
    Record,
    load_records,
    read_record,
    record_files,
    record_text,
    write_record,
)

__all__ = [
    "Record",
    "load_records",
    "read_record",
    "record_files",
    "record_text",
    "write_record",
]
