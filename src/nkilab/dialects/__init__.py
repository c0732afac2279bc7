"""The spellings of NKI: surfaces derived from the declarations, and the language around them."""
