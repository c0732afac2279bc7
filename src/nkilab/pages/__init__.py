"""Pages of documentation made from declarations and tables: content once, shown as Markdown, text or data."""
