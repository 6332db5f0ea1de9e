"""What runs have shown: records, tables, figures and a page; reads files only, and never needs torch."""

from fedgkd.reporting.records import load_records, load_rounds

__all__ = ["load_records", "load_rounds"]
